//! What of a P rank may steer its future.

use super::Prefill;
use crate::memo::print;
use crate::names::{decode_request, number};
use crate::outline::Outline;

impl Prefill {
    /// A fingerprint without what nothing will read again, while `ahead` are the transfers
    /// that a pull may still name here, one bit each.
    ///
    /// - What is remembered of a transfer that ended answers later pulls, or the engine's hold;
    ///   a drop that is remembered answers the first pull.
    /// - D's layouts are for pulls to come.
    /// - Places in the queue and names of writes are compared with one another only.
    pub(crate) fn lasting(&self, ahead: u8) -> u64 {
        let mut sender = Outline::of(&self.sender);
        for name in ["config", "next_place", "next_write"] {
            sender.blank(name);
        }
        sender.order("Queued", "queue");
        sender.order("SendWriteId", "writes");
        self.forget(&mut sender, ahead);
        let pulls = self.pulls.iter().map(|(own, asked)| {
            let open = |grant: u64| asked.unanswered.contains(&decode_request(grant as u8 - 1));
            let grants: Vec<_> =
                asked.grants.iter().flatten().filter(|grant| open(grant.0)).collect();
            let about = (asked.engine, asked.layout_id, asked.generation);
            (own, asked.id, about, grants, &asked.unanswered)
        });
        let table = (ahead != 0).then_some(&self.table);
        let life = (&self.lifecycle, self.frozen, self.now, self.run, self.restarts);
        let own = (self.rank, self.registration, self.held, self.running);
        print(&(sender, pulls.collect::<Vec<_>>(), table, life, own))
    }

    fn forget(&self, sender: &mut Outline, ahead: u8) {
        let known: Vec<u8> = sender
            .field("transfers")
            .map_or(&[][..], Outline::parts)
            .iter()
            .filter(|(_, it)| {
                let any = |name: &str| it.field(name).is_some_and(|of| !of.parts().is_empty());
                any("pending") || any("answered")
            })
            .filter_map(|(name, _)| Some(number(name.as_ref()?.text())))
            .collect();
        let Some(memory) = sender.field_mut("memory") else { return };
        let of = |item: &Outline| item.parts().first().map(|it| number(it.1.text()));
        let is_ahead = |transfer: u8| ahead & (1 << transfer) != 0;
        let is_running = |transfer: u8| self.running & (1 << transfer) != 0;
        let mut over = Vec::new();
        if let Some(transfers) = memory.field_mut("transfers").and_then(Outline::parts_mut) {
            over.extend(transfers.iter().filter_map(|(_, item)| of(item)));
            transfers.retain(|(_, item)| of(item).is_none_or(|it| is_ahead(it) || is_running(it)));
            transfers.sort();
        }
        if let Some(dropped) = memory.field_mut("dropped").and_then(Outline::parts_mut) {
            let decided = |it: u8| !is_running(it) && (over.contains(&it) || known.contains(&it));
            dropped.retain(|(_, item)| of(item).is_none_or(|it| is_ahead(it) && !decided(it)));
            dropped.sort();
        }
    }
}
