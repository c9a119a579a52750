//! P echoes a layout id only once it has received that layout, under its own registration.

use super::Oracle;
use super::lives::Lives;
use crate::history::{ConnectionId, Event, What};
use kvbaton_core::ids::LayoutId;
use kvbaton_core::wire::Status;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
struct Node {
    /// Layouts that came in since the last registration.
    held: BTreeSet<LayoutId>,
    /// What the answers to a pull may echo, decided when the pull came in.
    may_echo: BTreeMap<ConnectionId, BTreeSet<LayoutId>>,
}

/// Remembers the layouts that each P has received.
#[derive(Debug, Default)]
pub struct EchoOnlyWhenHeld {
    nodes: Lives<Node>,
}

impl Oracle for EchoOnlyWhenHeld {
    fn name(&self) -> &'static str {
        "echo-only-when-held"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["L02", "L03", "L09"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, it)) = self.nodes.of(event) else { return Ok(()) };
        match &event.what {
            What::Registered { .. } => it.held.clear(),
            What::PullReceived { connection, pull } if !pull.layout_id.is_none() => {
                if pull.with_layout {
                    it.held.insert(pull.layout_id);
                }
                if it.held.contains(&pull.layout_id) {
                    it.may_echo.entry(*connection).or_default().insert(pull.layout_id);
                }
            }
            What::ReplySent { connection, reply } if !reply.layout_id.is_none() => {
                let (echo, failed) = (reply.layout_id, reply.status);
                if matches!(failed, Status::Error | Status::LayoutMiss) {
                    return Err(format!("{node}: echoes layout {echo} with {failed:?}"));
                }
                if !it.may_echo.get(connection).is_some_and(|ids| ids.contains(&echo)) {
                    return Err(format!(
                        "{node}: echoes layout {echo} on c{}, which it has not received under \
                         its registration",
                        connection.0
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{
        OF_P, Story, caught, legal, pull, pull_received, reply, reply_sent,
    };

    fn received() -> Story {
        Story::new().p(pull_received(1, pull(3, true, &[("a", 7)])))
    }

    fn echo(connection: u64, layout: u64) -> What {
        reply_sent(connection, reply(Status::Finish, &["a"], &[], layout))
    }

    fn without() -> What {
        pull_received(2, pull(3, false, &[("a", 7)]))
    }

    #[test]
    fn l03_an_echo_follows_the_layout() {
        legal(EchoOnlyWhenHeld::default(), received().p(echo(1, 3)).p(without()).p(echo(2, 3)));
        legal(EchoOnlyWhenHeld::default(), Story::new().p(without()).p(echo(2, 0)));
        caught(
            EchoOnlyWhenHeld::default(),
            Story::new().p(without()).p(echo(2, 3)),
            "not received",
        );
        caught(EchoOnlyWhenHeld::default(), received().p(echo(1, 5)), "not received");
    }

    #[test]
    fn l09_a_registration_forgets_layouts_but_answers_still_echo() {
        let again = || received().p(What::Registered { generation: OF_P });
        legal(EchoOnlyWhenHeld::default(), again().p(echo(1, 3)));
        caught(EchoOnlyWhenHeld::default(), again().p(without()).p(echo(2, 3)), "not received");
    }

    #[test]
    fn l02_a_refusal_echoes_nothing() {
        let error = reply_sent(1, reply(Status::Error, &[], &[], 3));
        caught(EchoOnlyWhenHeld::default(), received().p(error), "with Error");
    }
}
