//! Every answer equals the single engine's.

use super::Oracle;
use super::unprotected::Unprotected;
use crate::history::{Answer, Event, What};
use std::collections::BTreeMap;

/// Compares tokens with those of the single engine.
#[derive(Debug, Default)]
pub struct Answers {
    unprotected: Unprotected,
    /// D's engine of each try.
    decodes: BTreeMap<(u32, u32), u16>,
}

impl Oracle for Answers {
    fn name(&self) -> &'static str {
        "answers"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["A07", "R04", "R07"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        self.unprotected.observe(event);
        if let What::Submitted { request, attempt, decode, .. } = event.what {
            self.decodes.insert((request, attempt), decode);
        }
        let What::Answered { request, attempt, answer } = &event.what else { return Ok(()) };
        let decode = self.decodes.remove(&(*request, *attempt));
        if decode.is_some_and(|engine| self.unprotected.is_suspect(engine)) {
            return Ok(());
        }
        let Answer::Tokens { tokens, expected } = answer else { return Ok(()) };
        if expected.contains(tokens) {
            return Ok(());
        }
        Err(format!(
            "request {request} (try {attempt}) was answered {tokens:?}; the single engine \
             answers one of {expected:?}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{Story, caught, legal};

    fn answered(tokens: &[u32], expected: &[&[u32]]) -> Story {
        let expected = expected.iter().map(|it| it.to_vec()).collect();
        let answer = Answer::Tokens { tokens: tokens.to_vec(), expected };
        Story::new().clients(What::Answered { request: 3, attempt: 0, answer })
    }

    #[test]
    fn r07_tokens_are_those_of_one_weight_version() {
        legal(Answers::default(), answered(&[1, 2], &[&[9, 9], &[1, 2]]));
        caught(Answers::default(), answered(&[1, 9], &[&[9, 9], &[1, 2]]), "request 3 (try 0)");
        caught(Answers::default(), answered(&[1], &[&[1, 2]]), "request 3");
        caught(Answers::default(), answered(&[1], &[]), "request 3");
    }

    #[test]
    fn no_tokens_are_no_wrong_tokens() {
        let answer = Answer::Lost("killed".into());
        legal(
            Answers::default(),
            Story::new().clients(What::Answered { request: 3, attempt: 0, answer }),
        );
    }
}
