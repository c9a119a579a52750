//! No rank gives its registration up before every rank of its engine is prepared.

use super::Oracle;
use super::lives::Lives;
use crate::history::{Event, What};
use kvbaton_core::lifecycle::engine::RankOrder;

#[derive(Debug, Default)]
struct Rank {
    preparing: Option<u32>,
    prepared: bool,
}

/// Follows both phases of releases.
#[derive(Debug, Default)]
pub struct PreparedFirst {
    ranks: Lives<Rank>,
}

impl Oracle for PreparedFirst {
    fn name(&self) -> &'static str {
        "prepared-first"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["S06", "S01"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, rank)) = self.ranks.of(event) else { return Ok(()) };
        match &event.what {
            What::RankTold { number, order: RankOrder::Prepare } => {
                *rank = Rank { preparing: Some(*number), prepared: false };
            }
            What::RankTold { order: RankOrder::Cancel | RankOrder::Restore, .. } => {
                *rank = Rank::default();
            }
            What::OrderDone { number, failed } if rank.preparing == Some(*number) => {
                *rank = Rank { preparing: None, prepared: failed.is_none() };
            }
            What::RankTold { order: RankOrder::Commit, .. } => {
                let mut all = self.ranks.of_engine(node.engine);
                if let Some((other, _)) = all.find(|(_, it)| !it.prepared) {
                    return Err(format!("{node} is to unregister, but {other} is not prepared"));
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
    use crate::history::NodeId;
    use crate::oracles::made_up::{P, Story, caught, legal, started};

    const SECOND: NodeId = NodeId { rank: 1, ..P };

    fn told(number: u32, order: RankOrder) -> What {
        What::RankTold { number, order }
    }

    fn done(number: u32) -> What {
        What::OrderDone { number, failed: None }
    }

    fn preparing() -> Story {
        let story = Story::new().node(SECOND, started(false, "q"));
        let story = story.p(told(1, RankOrder::Prepare));
        story.node(SECOND, told(2, RankOrder::Prepare)).p(done(1))
    }

    #[test]
    fn s06_every_rank_is_prepared_first() {
        let commit = |story: Story| story.p(told(3, RankOrder::Commit));
        legal(PreparedFirst::default(), commit(preparing().node(SECOND, done(2))));
        caught(PreparedFirst::default(), commit(preparing()), "but e0.r1 is not prepared");
        let why = What::OrderDone { number: 2, failed: Some("in use".into()) };
        let refused = preparing().node(SECOND, why);
        caught(PreparedFirst::default(), commit(refused), "but e0.r1 is not prepared");
        let taken_back = preparing().node(SECOND, done(2)).p(told(4, RankOrder::Cancel));
        caught(PreparedFirst::default(), commit(taken_back), "but e0.r0 is not prepared");
    }
}
