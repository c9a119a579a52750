//! Loaded KV is what the model says.

use super::Oracle;
use crate::history::{Event, What};

/// Objects to bytes that differ.
#[derive(Debug, Default)]
pub struct Compared;

impl Oracle for Compared {
    fn name(&self) -> &'static str {
        "compared"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["A07", "P08", "G02"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        match &event.what {
            What::Compared { request, bytes, different: different @ 1.. } => Err(format!(
                "{}: {different} of the {bytes} bytes that {request} loaded are not the model's",
                event.lane
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{Story, caught, legal};

    #[test]
    fn a07_one_wrong_byte_is_enough() {
        let compared = |different| {
            let what = What::Compared { request: "r".into(), bytes: 64, different };
            Story::new().engine(1, what)
        };
        legal(Compared, compared(0));
        caught(Compared, compared(1), "e1: 1 of the 64 bytes");
    }
}
