//! Messages on their way.

use crate::memo::print;
use crate::names::number;
use crate::print::wide;
use kvbaton_core::ids::Grant;
use kvbaton_core::sender::PullId;
use kvbaton_core::wire::{DropTransfers, FailureReason, Pull, Reply};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "always behind a pointer")]
pub enum Packet {
    /// D asks a P rank.
    Pull {
        /// The P rank.
        rank: u8,
        /// 1 for the duplicate.
        copy: u8,
        /// D's name of it.
        id: PullId,
        /// The message.
        pull: Pull,
    },
    /// P answers; its text is left out.
    Reply {
        /// The P rank.
        rank: u8,
        /// D's name of the pull.
        id: PullId,
        /// The message.
        reply: Reply,
    },
    /// D gives loads up.
    Drop {
        /// The P rank.
        rank: u8,
        /// The message.
        drop: DropTransfers,
    },
    /// D asks the bootstrap server, which answers as it is when the question arrives.
    Ask,
    /// D's own data plane has closed a grant. Never lost, never doubled.
    Revoked(Grant),
    /// D's connection to a P rank broke: its pull gets no answer. Never lost, never doubled.
    Broken(PullId),
}

impl Packet {
    /// Whether a network carries it, that may lose and double it.
    #[must_use]
    pub const fn travels(&self) -> bool {
        !matches!(self, Self::Revoked(_) | Self::Broken(_))
    }
}

/// A message and its fingerprint, by which alone it is compared.
#[derive(Debug, Clone)]
pub struct Letter {
    print: u64,
    /// A fingerprint without what its receiver does not read.
    lasting: u64,
    packet: Arc<Packet>,
}

impl Letter {
    /// Addresses a message.
    #[must_use]
    pub fn new(packet: Packet) -> Self {
        let own = print(&packet);
        let lasting = match &packet {
            Packet::Reply { rank, id, reply } => print(&(rank, id, as_read(reply.clone()))),
            _ => own,
        };
        Self { print: own, lasting, packet: Arc::new(packet) }
    }
}

impl Letter {
    /// The same message once more.
    #[must_use]
    pub fn again(&self) -> Self {
        let mut packet = (*self.packet).clone();
        if let Packet::Pull { copy, .. } = &mut packet {
            *copy = 1;
        }
        Self::new(packet)
    }
}

/// An answer as D reads it: of why a request failed only whether P has restarted. Whether it
/// has settled matters for stock ranks, of which there are none.
fn as_read(mut reply: Reply) -> Reply {
    for (_, why, settled) in reply.extension.iter_mut().flat_map(|it| &mut it.outcomes) {
        if *why != FailureReason::UnknownIncarnation {
            *why = FailureReason::Dropped;
        }
        *settled = true;
    }
    reply
}

impl Deref for Letter {
    type Target = Packet;
    fn deref(&self) -> &Packet {
        &self.packet
    }
}

impl PartialEq for Letter {
    fn eq(&self, other: &Self) -> bool {
        self.print == other.print
    }
}

impl Eq for Letter {}

impl Hash for Letter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.print.hash(state);
    }
}

/// Messages in no order: each may arrive next. Kept sorted by fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Bag(Vec<Letter>);

impl Bag {
    pub(crate) fn push(&mut self, letter: Letter) {
        let at = self.0.partition_point(|other| other.print < letter.print);
        self.0.insert(at, letter);
    }

    pub(crate) fn take(&mut self, at: u8) -> Letter {
        self.0.remove(at.into())
    }

    pub(crate) fn position(&self, of: impl Fn(&Packet) -> bool) -> Option<u8> {
        self.0.iter().position(|letter| of(letter)).map(|at| at as u8)
    }

    pub(crate) fn get(&self, at: u8) -> &Packet {
        &self.0[usize::from(at)]
    }

    /// Positions of messages that differ.
    pub(crate) fn distinct(&self) -> impl Iterator<Item = (u8, &Packet)> {
        let first = |at: usize| at == 0 || self.0[at - 1] != self.0[at];
        (0..self.0.len()).filter(move |at| first(*at)).map(|at| (at as u8, &*self.0[at]))
    }

    /// A fingerprint without what nobody reads.
    pub(crate) fn lasting(&self) -> u128 {
        let mut prints: Vec<u64> = self.0.iter().map(|letter| letter.lasting).collect();
        prints.sort_unstable();
        wide(&prints)
    }

    /// The transfers that pulls to a P rank name, one bit each.
    pub(crate) fn pulled(&self, rank: u8) -> u8 {
        let pulls = self.0.iter().filter_map(|letter| match &**letter {
            Packet::Pull { rank: to, pull, .. } if *to == rank => Some(&pull.requests),
            _ => None,
        });
        pulls.flatten().fold(0, |all, it| all | 1 << number(it.transfer_id.as_str()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
