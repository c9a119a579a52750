//! Which ranks of two engines talk to each other.

use crate::incompatible::Incompatible;
use crate::planted::{self, Bug};
use smallvec::SmallVec;

/// A rank's place in its engine. Ranks start at 0; sizes are at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topology {
    /// Tensor-parallel rank.
    pub tp_rank: u32,
    /// Tensor-parallel size.
    pub tp_size: u32,
    /// Pipeline-parallel rank (stage).
    pub pp_rank: u32,
    /// Pipeline-parallel size.
    pub pp_size: u32,
}

impl Topology {
    /// An engine of one rank.
    pub const SINGLE: Self = Self { tp_rank: 0, tp_size: 1, pp_rank: 0, pp_size: 1 };

    /// The tensor-parallel ranks of the other engine that this rank pairs with, the same
    /// from either side `[A04]`: `rank / ratio` when this engine is the larger, `ratio`
    /// consecutive ranks when it is the smaller.
    ///
    /// # Errors
    /// [`Incompatible::TpSizesDoNotDivide`] when neither size divides the other.
    pub fn paired_tp_ranks(self, remote_tp_size: u32) -> Result<SmallVec<[u32; 8]>, Incompatible> {
        let local = self.tp_size;
        let refuse = || Incompatible::TpSizesDoNotDivide { local, remote: remote_tp_size };
        if remote_tp_size == 0 {
            return Err(refuse());
        }
        if local >= remote_tp_size {
            if !local.is_multiple_of(remote_tp_size) {
                return Err(refuse());
            }
            return Ok(SmallVec::from_slice(&[self.tp_rank / (local / remote_tp_size)]));
        }
        if !remote_tp_size.is_multiple_of(local) {
            return Err(refuse());
        }
        let ratio = remote_tp_size / local;
        Ok((0..ratio).filter_map(|i| self.tp_rank.checked_mul(ratio)?.checked_add(i)).collect())
    }

    /// Checks that this P rank may serve D's rank `remote_tp_rank` `[A04]`.
    ///
    /// # Errors
    /// When the sizes do not divide, or another P rank serves that D rank.
    pub fn check_paired(
        self,
        remote_tp_rank: u32,
        remote_tp_size: u32,
    ) -> Result<(), Incompatible> {
        let paired = self.paired_tp_ranks(remote_tp_size)?;
        if paired.contains(&remote_tp_rank) {
            return Ok(());
        }
        Err(Incompatible::RanksNotPaired {
            local_rank: self.tp_rank,
            local_size: self.tp_size,
            remote_rank: remote_tp_rank,
            remote_size: remote_tp_size,
        })
    }
}

/// How many D ranks read one transfer of this P rank: P counts them all before it frees,
/// also those whose stage shares no layer with it `[A02]`.
///
/// # Errors
/// [`Incompatible::TpSizesDoNotDivide`].
pub fn expected_pulls(
    local: Topology,
    remote_tp_size: u32,
    remote_pp_size: u32,
) -> Result<u32, Incompatible> {
    let ranks = local.paired_tp_ranks(remote_tp_size)?.len() as u32;
    let one = remote_pp_size == local.pp_size || planted::is(Bug::StagesMiscounted);
    let stages = if one { 1 } else { remote_pp_size.max(1) };
    Ok(ranks.saturating_mul(stages))
}

/// The P ranks, as (tensor-parallel, pipeline-parallel), that this D rank pulls from: its
/// own stage when both engines have as many stages, else every stage `[A02]`.
///
/// # Errors
/// [`Incompatible::TpSizesDoNotDivide`].
pub fn pull_targets(
    local: Topology,
    remote_tp_size: u32,
    remote_pp_size: u32,
) -> Result<Vec<(u32, u32)>, Incompatible> {
    let stages = if remote_pp_size == local.pp_size {
        local.pp_rank..local.pp_rank + 1
    } else {
        0..remote_pp_size.max(1)
    };
    let ranks = local.paired_tp_ranks(remote_tp_size)?;
    Ok(ranks.iter().flat_map(|&tp| stages.clone().map(move |pp| (tp, pp))).collect())
}
