//! A machine's hash tells its states apart, as a model checker needs.

mod two_sides;

use kvbaton_core::directory::EngineRanks;
use kvbaton_core::ids::{EngineId, Incarnation, LayoutId, SessionAddress, TransferId};
use kvbaton_core::peer_layouts::LayoutTable;
use kvbaton_core::receiver::{Receiver, ReceiverConfig};
use kvbaton_core::sender::{Sender, SenderConfig};
use kvbaton_core::time::Timestamp;
use kvbaton_core::topology::Topology;
use kvbaton_core::wire::{DropTransfers, Pull};
use std::hash::{DefaultHasher, Hash, Hasher};
use two_sides::*;

const NOW: Timestamp = Timestamp(0);

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Never asked to plan.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct NoPlan;

impl kvbaton_core::sender::PlanCopies for NoPlan {
    fn plan(
        &self,
        _: kvbaton_core::sender::BlocksUntil<'_>,
        _: kvbaton_core::sender::BlocksUntil<'_>,
        _: &mut Vec<kvbaton_core::region::Copy>,
    ) -> Result<(), String> {
        Ok(())
    }
}

fn sender(released: &[&str], dropped: &[(&str, u64)]) -> Sender<NoPlan> {
    let mut sender = Sender::new(SenderConfig::default(), Incarnation(1), 0);
    released.iter().for_each(|it| sender.release(&TransferId::from(*it), NOW));
    for (transfer, grant) in dropped {
        let one = ("d".into(), TransferId::from(*transfer), kvbaton_core::ids::Grant(*grant));
        let drop = DropTransfers { incarnation: Incarnation(1), tp_rank: 0, transfers: vec![one] };
        sender.drop_transfers(&drop, NOW);
    }
    sender
}

#[test]
fn what_a_sender_remembers_counts_and_the_order_of_use_does_not() {
    let one = hash(&sender(&["a", "b"], &[("c", 1), ("c", 2)]));
    assert_eq!(one, hash(&sender(&["b", "a"], &[("c", 2), ("c", 1)])));
    assert_ne!(one, hash(&sender(&["a"], &[("c", 1), ("c", 2)])));
    assert_ne!(one, hash(&sender(&["a", "b"], &[("c", 1)])));
}

#[test]
fn what_a_receiver_knows_of_engines_counts_and_the_order_of_use_does_not() {
    let receiver = |engines: &[&str]| {
        let mut receiver = Receiver::new(ReceiverConfig::default(), Topology::SINGLE);
        for engine in engines {
            let known = vec![(EngineId::from(*engine), EngineRanks::new())];
            receiver.discovered("bootstrap", Ok(known), NOW);
        }
        hash(&receiver)
    };
    assert_eq!(receiver(&["a", "b"]), receiver(&["b", "a"]));
    assert_ne!(receiver(&["a", "b"]), receiver(&["a"]));
}

#[test]
fn what_a_layout_table_keeps_counts() {
    let registered = || {
        let mut table = LayoutTable::default();
        table.register(local(tp(0, 1), &plain(P, 0..2, 64), &[attention(1)])).expect("layout");
        table
    };
    let pull = |id: u64| Pull {
        session: SessionAddress { host: "10.0.0.2".into(), port: 1 },
        tp_size: 1,
        tp_rank: 0,
        pp_size: 1,
        layout_id: LayoutId(id),
        layout: Some(plain(D, 0..2, 64)),
        requests: Vec::new(),
        extension: None,
    };
    let after = |ids: &[u64]| {
        let mut table = registered();
        ids.iter().for_each(|id| drop(table.resolve(&pull(*id))));
        hash(&table)
    };
    assert_eq!(after(&[1]), after(&[1]));
    assert_ne!(after(&[1]), after(&[3]), "the peer's id");
    assert_ne!(after(&[]), after(&[0]), "a prepared layout alone");
    assert_ne!(hash(&LayoutTable::default()), hash(&registered()));
}
