//! LAYOUT_MISS answers only a pull that has an id and no layout: an old D never sees it.

use super::Oracle;
use super::lives::Lives;
use crate::history::{ConnectionId, Event, What};
use kvbaton_core::wire::Status;
use std::collections::BTreeMap;

/// Remembers which pulls may miss.
#[derive(Debug, Default)]
pub struct NoMissToOldD {
    may_miss: Lives<BTreeMap<ConnectionId, bool>>,
}

impl Oracle for NoMissToOldD {
    fn name(&self) -> &'static str {
        "no-miss-to-old-d"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["L05", "L06"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, may_miss)) = self.may_miss.of(event) else { return Ok(()) };
        match &event.what {
            What::PullReceived { connection, pull } => {
                may_miss.insert(*connection, !pull.layout_id.is_none() && !pull.with_layout);
            }
            What::ReplySent { connection, reply }
                if reply.status == Status::LayoutMiss
                    && may_miss.get(connection) != Some(&true) =>
            {
                return Err(format!(
                    "{node}: LAYOUT_MISS on c{} for a pull with its layout or without an id",
                    connection.0
                ));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{Story, caught, legal, pull, pull_received, reply, reply_sent};

    fn missed(layout: u64, with_layout: bool) -> Story {
        let story = Story::new().p(pull_received(1, pull(layout, with_layout, &[("a", 7)])));
        story.p(reply_sent(1, reply(Status::LayoutMiss, &[], &[], 0)))
    }

    #[test]
    fn l06_only_a_pull_with_an_id_and_no_layout_misses() {
        legal(NoMissToOldD::default(), missed(3, false));
        caught(NoMissToOldD::default(), missed(3, true), "LAYOUT_MISS on c1");
        caught(NoMissToOldD::default(), missed(0, true), "LAYOUT_MISS on c1");
        caught(NoMissToOldD::default(), missed(0, false), "LAYOUT_MISS on c1");
    }
}
