//! In a calm world a layout travels once: after its echo it is left out.

use super::Oracle;
use super::lives::Lives;
use crate::history::{Event, What};
use crate::plan::Plan;
use kvbaton_core::ids::LayoutId;
use kvbaton_core::wire::Status;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Judges calm plans whose D ranks can remember all P ranks.
#[derive(Debug)]
pub struct LayoutOnce {
    judges: bool,
    echoes: Lives<BTreeMap<Arc<str>, LayoutId>>,
}

impl LayoutOnce {
    /// For runs of `plan`.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let prefills = plan.fleet.engines.iter().filter(|it| it.side.sends());
        let ranks: u32 = prefills.map(|it| it.ranks()).sum();
        let remembered = ranks as usize <= plan.bounds.max_peers;
        Self { judges: plan.is_calm() && remembered, echoes: Lives::default() }
    }
}

impl Oracle for LayoutOnce {
    fn name(&self) -> &'static str {
        "layout-once"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["L03", "L04"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        if !self.judges {
            return Ok(());
        }
        let Some((node, echoes)) = self.echoes.of(event) else { return Ok(()) };
        match &event.what {
            What::Registered { .. } => echoes.clear(),
            What::ReplyReceived { from, reply, .. } => match reply.status {
                Status::LayoutMiss | Status::Error => drop(echoes.remove(from)),
                _ if reply.layout_id.is_none() => {}
                _ => drop(echoes.insert(from.clone(), reply.layout_id)),
            },
            What::PullSent { to, pull, .. }
                if pull.with_layout && echoes.get(to) == Some(&pull.layout_id) =>
            {
                return Err(format!(
                    "{node}: a pull to {to} carries layout {}, which {to} has echoed",
                    pull.layout_id
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
    use crate::oracles::made_up::{
        OF_D, Story, caught, legal, plan, pull, pull_sent, reply, reply_received,
    };

    fn sent(story: Story, with_layout: bool) -> Story {
        story.d(pull_sent(1, pull(3, with_layout, &[("a", 7)])))
    }

    fn answered(status: Status, layout: u64) -> What {
        reply_received(1, reply(status, &[], &[], layout))
    }

    fn echoed() -> Story {
        sent(Story::new(), true).d(answered(Status::Continue, 3))
    }

    #[test]
    fn l04_the_layout_goes_once() {
        let oracle = || LayoutOnce::new(&plan());
        legal(oracle(), sent(sent(echoed(), false), false));
        legal(oracle(), sent(sent(Story::new(), true), true));
        caught(oracle(), sent(echoed(), true), "has echoed");
        legal(oracle(), sent(echoed().d(answered(Status::LayoutMiss, 0)), true));
        legal(oracle(), sent(echoed().d(What::Registered { generation: OF_D }), true));
        let silent = sent(Story::new(), true).d(answered(Status::Finish, 0));
        legal(oracle(), sent(silent, true));
    }

    #[test]
    fn elsewhere_it_may_go_again() {
        let mut crowded = plan();
        crowded.bounds.max_peers = 0;
        legal(LayoutOnce::new(&crowded), sent(echoed(), true));
        let mut stormy = plan();
        stormy.odds.reset = 1;
        legal(LayoutOnce::new(&stormy), sent(echoed(), true));
    }
}
