//! A made-up planner: one byte per block, the tail of what P holds.

use kvbaton_core::ids::{Address, BlockId, Bytes};
use kvbaton_core::region::Copy as BlockCopy;
use kvbaton_core::sender::{BlocksUntil, PlanCopies};

/// How copies are planned for one D.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planner {
    /// One copy per block that D wants.
    Blocks,
    /// D shares no layer with this rank: there is nothing to copy.
    NoSharedLayer,
}

impl PlanCopies for Planner {
    fn plan(
        &self,
        held: BlocksUntil<'_>,
        wanted: BlocksUntil<'_>,
        out: &mut Vec<BlockCopy>,
    ) -> Result<(), String> {
        if *self == Self::NoSharedLayer {
            return Ok(());
        }
        let ids = |it: BlocksUntil<'_>| -> Vec<BlockId> {
            it.groups.iter().flat_map(|group| group.iter().collect::<Vec<_>>()).collect()
        };
        let (held, wanted) = (ids(held), ids(wanted));
        let Some(skipped) = held.len().checked_sub(wanted.len()) else {
            return Err(format!("P holds {} blocks, D wants {}", held.len(), wanted.len()));
        };
        out.extend(held[skipped..].iter().zip(&wanted).map(|(from, to)| BlockCopy {
            source: Address(from.0.into()),
            destination: Address(to.0.into()),
            len: Bytes(1),
        }));
        Ok(())
    }
}
