//! What of D may steer its future.

use super::{Decode, Load};
use crate::memo::print;
use crate::names::number;
use crate::options::{Broken, Options};
use crate::outline::Outline;

/// P ranks that a world has at most.
const RANKS: usize = 2;

impl Decode {
    /// The transfers that D may still name in a pull to each P rank, one bit each, as bytes.
    pub(crate) fn may_pull(&self) -> u16 {
        let receiver = Outline::of(&self.receiver);
        let mut ranks = [self.staged(&receiver); RANKS];
        for (_, pull) in receiver.field("pulls").map_or(&[][..], Outline::parts) {
            // A pull with the layout is not repeated.
            let rank = pull.field("address").map_or(0, |it| number(it.text()));
            if pull.field("with_layout").is_none_or(|it| it.text() != "true") {
                for (request, _) in pull.field("open").map_or(&[][..], Outline::parts) {
                    let load = request.as_ref().map_or(0, |it| number(it.text()));
                    ranks[usize::from(rank)] |= 1 << load;
                }
            }
        }
        u16::from_le_bytes(ranks)
    }

    /// Loads whose pulls have yet to be made.
    fn staged(&self, receiver: &Outline) -> u8 {
        let new = (0u8..).zip(&self.loads).filter(|(_, it)| **it == Load::New);
        let new = new.fold(0, |all, (load, _)| all | 1 << load);
        let loads = receiver.field("loads").map_or(&[][..], Outline::parts);
        let waiting = loads.iter().filter(|(_, load)| !has_pulled(load));
        waiting.fold(new, |all, (_, load)| all | 1 << request(load))
    }

    /// A fingerprint without what nothing will read again, while pulls on their way name the
    /// transfers `named`, one bit each.
    ///
    /// - Why a load failed is a text; its data is read when it has not failed.
    /// - What is known of P is for loads whose pulls have yet to be made, the next pull's name
    ///   for these and for those that may be made again.
    pub(crate) fn lasting(&self, named: u8, options: &Options) -> u64 {
        let mut receiver = Outline::of(&self.receiver);
        let blind = options.broken == Some(Broken::BlindPrint);
        let staged = self.staged(&receiver) != 0 && !blind;
        let [some, other] = self.may_pull().to_le_bytes();
        let ahead = named | some | other;
        receiver.blank("config");
        receiver.blank("next_load");
        if !staged {
            receiver.blank("peers");
        }
        if some | other == 0 {
            receiver.blank("next_pull");
        }
        receiver.order("LoadId", "loads");
        let mut lost = 0u8;
        for (_, load) in
            receiver.field_mut("loads").and_then(Outline::parts_mut).into_iter().flatten()
        {
            let dropped = load.field("dropped").is_some_and(|it| it.text() == "true");
            let failed = load.field("failure").is_some_and(|it| it.text() != "None");
            if dropped || failed {
                lost |= 1 << request(load);
            }
            if dropped {
                load.blank("failure");
            } else if let (true, Some(failure)) = (failed, load.field_mut("failure")) {
                *failure = Outline::Leaf("Some".into());
            }
            if has_pulled(load) {
                load.blank("asked_late");
            }
            if load.field("phase").is_some_and(|it| it.text() == "Revoking") {
                load.blank("drop_sent");
                load.blank("deadline");
            }
        }
        for (_, pull) in
            receiver.field_mut("pulls").and_then(Outline::parts_mut).into_iter().flatten()
        {
            pull.blank("writes_until");
        }
        let loads = (0u8..).zip(&self.loads).map(|(load, it)| match *it {
            Load::Running { first, .. } if ahead & 1 << load == 0 => {
                Load::Running { first, engine: 0 }
            }
            Load::Ended { .. } if ahead & 1 << load == 0 => Load::Ended { engine: 0 },
            other => other,
        });
        let is_lost = |block: u8| {
            (0u8..).zip(&self.loads).any(|(load, it)| match *it {
                Load::Running { first, .. } => {
                    lost & 1 << load != 0 && (first..first + options.blocks).contains(&block)
                }
                Load::New | Load::Ended { .. } => false,
            })
        };
        let memory: Vec<_> =
            self.memory.iter().filter(|((_, block), _)| !is_lost(*block)).collect();
        let own = (self.registration, self.now, staged.then_some(self.heard));
        let loads: Vec<Load> = loads.collect();
        print(&(receiver, &self.lifecycle, own, loads, &self.open, memory))
    }
}

/// The number of a load's request.
fn request(load: &Outline) -> u8 {
    let spec = load.field("spec").and_then(|it| it.field("request"));
    spec.map_or(0, |it| number(it.text()))
}

fn has_pulled(load: &Outline) -> bool {
    load.field("phase").is_some_and(|it| matches!(it.text(), "Pulling" | "Revoking"))
}
