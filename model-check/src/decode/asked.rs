//! What the receiver asks for, and whether it may.

use super::{Decode, Load};
use crate::coverage::Seen;
use crate::memo::Output;
use crate::names::{address, grant, number};
use crate::network::Packet;
use crate::options::{Broken, Options};
use crate::rules::Rule;
use kvbaton_core::receiver::{LoadEnd, ReceiverAction};

impl Decode {
    /// Carries out what the receiver asks for.
    pub(super) fn drain(&mut self, options: &Options, out: &mut Output) {
        while let Some(action) = self.receiver.next_action() {
            match action {
                ReceiverAction::Discover { .. } => out.send(Packet::Ask),
                ReceiverAction::OpenGrant { grant, generation, blocks, allow_ungranted } => {
                    out.require(Rule::G01, self.generation() == Some(generation));
                    out.require(Rule::G01, !allow_ungranted);
                    let rows = blocks[0].iter().map(|block| block.0 as u8).collect();
                    self.open.insert(grant, rows);
                }
                ReceiverAction::Pull { id, address: to, pull, .. } => {
                    let rank = (0..options.ranks).find(|rank| address(*rank) == to);
                    let rank = rank.expect("an address of the world");
                    let heard = self.heard & (1 << rank) != 0;
                    out.require(Rule::L04, pull.layout.is_some() || heard);
                    out.send(Packet::Pull { rank, copy: 0, id, pull });
                }
                ReceiverAction::ClosePull(_) => {}
                ReceiverAction::Drop { address: to, drop } => {
                    let rank = (0..options.ranks).find(|rank| address(*rank) == to);
                    let rank = rank.expect("an address of the world");
                    out.send(Packet::Drop { rank, drop });
                }
                ReceiverAction::Revoke(grant) => {
                    if options.broken == Some(Broken::EarlyRevocation) {
                        self.receiver.revoked(grant);
                    }
                    out.send(Packet::Revoked(grant));
                }
                ReceiverAction::Ended { request, end, .. } => {
                    self.ended(number(request.as_str()), &end, options, out);
                }
            }
        }
    }

    fn ended(&mut self, load: u8, end: &LoadEnd, options: &Options, out: &mut Output) {
        let Load::Running { first, engine } = self.loads[usize::from(load)] else {
            return out.require(Rule::P08, false);
        };
        out.require(Rule::P08, !self.open.contains_key(&grant(load)));
        out.saw(match end {
            LoadEnd::Loaded => Seen::Loaded,
            LoadEnd::Failed(_) => Seen::Failed,
            LoadEnd::Dropped => Seen::Dropped,
        });
        for rank in 0..options.ranks {
            for place in 0..options.blocks {
                let landed = self.memory.remove(&(rank, first + place));
                let right = landed == Some(load * options.blocks + place);
                out.require(Rule::P08, right || *end != LoadEnd::Loaded);
            }
        }
        self.loads[usize::from(load)] = Load::Ended { engine };
    }
}
