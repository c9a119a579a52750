//! Which bytes of a row one P rank sends to one D rank `[A04]`.

use super::local::{GroupSpec, Heads, PeerTopology};
use crate::incompatible::Incompatible;
use crate::region::GroupKind;
use crate::topology::Topology;

/// Part of a row's payload that moves, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slice {
    pub source_offset: u64,
    pub destination_offset: u64,
    pub len: u64,
    /// False when another P rank of the pair holds the same and sends it.
    pub sends: bool,
}

/// One pair of ranks and one group.
#[derive(Debug, Clone, Copy)]
pub(super) struct RankPair {
    pub local: Topology,
    pub peer: PeerTopology,
    pub spec: GroupSpec,
}

/// Heads of one rank: from `first`, `count` of them.
#[derive(Debug, Clone, Copy)]
struct HeadRange {
    first: u64,
    count: u64,
}

impl RankPair {
    fn same_size(&self) -> bool {
        self.local.tp_size == self.peer.tp_size
    }

    /// Whether ranks of both sides hold equal parts, so that whole payloads move. State
    /// moves between equal sizes only, see [`Self::check`].
    pub(super) fn parts_are_equal(&self) -> bool {
        match self.spec.heads {
            Heads::Replicated => true,
            Heads::Split(heads) => self.local.tp_size.min(heads) == self.peer.tp_size.min(heads),
        }
    }

    /// Whether the stock connector merges across page padding for this pair: it must move
    /// whole payloads, and P must hold what every other P rank (of a replica set) holds.
    pub(super) fn rows_move_whole(&self) -> bool {
        self.parts_are_equal()
            && match self.spec.heads {
                _ if self.same_size() => true,
                Heads::Replicated => true,
                Heads::Split(heads) => self.local.tp_size > heads,
            }
    }

    /// Checks that rows of `layer_name` may be cut as this pair needs.
    pub(super) fn check(
        &self,
        layer_name: &str,
        uncuttable: Option<&'static str>,
    ) -> Result<(), Incompatible> {
        if self.same_size() {
            return Ok(());
        }
        let (local_tp, remote_tp) = (self.local.tp_size, self.peer.tp_size);
        let layer_name = || layer_name.to_owned();
        if self.spec.kind == GroupKind::State {
            let layer_name = layer_name();
            return Err(Incompatible::StateReshardingUnsupported {
                layer_name,
                local_tp,
                remote_tp,
            });
        }
        let Heads::Split(heads) = self.spec.heads else { return Ok(()) };
        let unknown = (heads == 0).then_some("the number of KV heads is not known");
        let uncuttable = uncuttable.filter(|_| !self.parts_are_equal());
        if let Some(why) = unknown.or(uncuttable) {
            let layer_name = layer_name();
            return Err(Incompatible::HeadReshardingUnsupported {
                layer_name,
                local_tp,
                remote_tp,
                why,
            });
        }
        if !spreads(heads, local_tp) || !spreads(heads, remote_tp) {
            let layer_name = layer_name();
            return Err(Incompatible::KvHeadsDoNotDivide {
                layer_name,
                heads,
                local_tp,
                remote_tp,
            });
        }
        Ok(())
    }

    /// The bytes that move, for payloads of these lengths; `None` when they do not match
    /// under the two sizes `[F40]`. Call after [`Self::check`] and once the ranks are
    /// known to pair.
    pub(super) fn slice(&self, local_len: u64, remote_len: u64) -> Option<Slice> {
        let whole = (local_len == remote_len).then_some(Slice {
            source_offset: 0,
            destination_offset: 0,
            len: local_len,
            sends: true,
        });
        match self.spec.heads {
            _ if self.same_size() => whole,
            Heads::Replicated => {
                let ratio = (self.local.tp_size / self.peer.tp_size).max(1);
                whole
                    .map(|slice| Slice { sends: self.local.tp_rank.is_multiple_of(ratio), ..slice })
            }
            Heads::Split(heads) => self.head_slice(u64::from(heads), local_len, remote_len),
        }
    }

    /// The heads that both ranks hold. Of the P ranks that hold the same heads, the first
    /// one that pairs with this D rank sends them `[F39]`.
    fn head_slice(&self, heads: u64, local_len: u64, remote_len: u64) -> Option<Slice> {
        let (tp, peer_tp) = (u64::from(self.local.tp_size), u64::from(self.peer.tp_size));
        let ours = HeadRange::of(heads, self.local.tp_rank.into(), tp);
        let theirs = HeadRange::of(heads, self.peer.tp_rank.into(), peer_tp);
        let bytes = local_len / ours.count;
        // No payload is empty, so heads are not either.
        if bytes * ours.count != local_len || bytes.checked_mul(theirs.count)? != remote_len {
            return None;
        }
        let first = ours.first.max(theirs.first);
        let end = (ours.first + ours.count).min(theirs.first + theirs.count);
        let replicas = (tp / heads).max(1).min((tp / peer_tp).max(1));
        Some(Slice {
            source_offset: (first - ours.first) * bytes,
            destination_offset: (first - theirs.first) * bytes,
            len: end.checked_sub(first).filter(|&count| count > 0)? * bytes,
            sends: u64::from(self.local.tp_rank).is_multiple_of(replicas),
        })
    }
}

impl HeadRange {
    fn of(heads: u64, rank: u64, size: u64) -> Self {
        Self { first: rank * heads / size, count: (heads / size).max(1) }
    }
}

fn spreads(heads: u32, size: u32) -> bool {
    heads.is_multiple_of(size) || size.is_multiple_of(heads)
}
