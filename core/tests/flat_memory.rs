//! A thousand D ranks, a thousand pulls each: P's memory is flat once its bounded tables
//! have filled `[L08, Z01]`.

use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{
    Address, Bytes, Generation, Grant, Incarnation, LayoutId, SessionAddress, WeightVersion,
};
use kvbaton_core::layout::{Layout, Tensor, TensorKind, TensorSpec};
use kvbaton_core::peer_layouts::{LayoutTable, Resolution};
use kvbaton_core::plan::{
    BlockRequest, GroupSpec, Heads, LocalLayout, PlanScratch, PreparedLayout, TokenEnds,
};
use kvbaton_core::region::{Copy, GroupKind, MemoryRange};
use kvbaton_core::sender::{
    BlocksUntil, PlanCopies, PullId, Reader, ResolvedPull, Sender, SenderAction, SenderConfig,
    WriteResult,
};
use kvbaton_core::time::Timestamp;
use kvbaton_core::topology::Topology;
use kvbaton_core::wire::{Limits, Pull, PullExtension, PullRequest, REVISION, Status, ToPrefill};
use std::alloc::{GlobalAlloc, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use std::time::Duration;

const PEERS: u16 = 1000;
const ROUNDS: u32 = 1000;
/// Rounds after which every bounded table is full and its hash table has its final size:
/// many times the ended transfers that the sender remembers.
const FILLED: u32 = 200;

static HELD: AtomicIsize = AtomicIsize::new(0);

struct Counting;

// SAFETY: every call is passed on to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        HELD.fetch_add(layout.size() as isize, Relaxed);
        // SAFETY: the caller keeps the contract, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: std::alloc::Layout) {
        HELD.fetch_sub(layout.size() as isize, Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Clone)]
struct Planner(Arc<PreparedLayout>);

impl PlanCopies for Planner {
    fn plan(
        &self,
        held: BlocksUntil<'_>,
        wanted: BlocksUntil<'_>,
        out: &mut Vec<Copy>,
    ) -> Result<(), String> {
        let request =
            BlockRequest { local: held.groups, remote: wanted.groups, ends: TokenEnds::default() };
        let planned = self.0.plan(request, &mut PlanScratch::default(), out);
        planned.map(|_| ()).map_err(|error| error.to_string())
    }
}

fn layout() -> Layout {
    let storage = MemoryRange { start: Address(1 << 20), len: Bytes(64 * 4096) };
    let tensor = Tensor {
        layer_name: "model.layers.0.self_attn.attn".into(),
        group: 0,
        storage,
        offset: Bytes(0),
        shape: vec![64, 1, 1, 4096],
        strides: vec![4096, 4096, 4096, 1],
        element_size: Bytes(1),
        spec: TensorSpec { kind: TensorKind::Attention, page_size: Bytes(4096) },
    };
    Layout::build(&[tensor], 64, 1).unwrap()
}

fn pull(peer: u16, round: u32, with_layout: bool) -> Vec<u8> {
    let pull = Pull {
        session: SessionAddress { host: "10.0.0.2".into(), port: 2000 + peer },
        tp_size: 1,
        tp_rank: 0,
        pp_size: 1,
        layout_id: LayoutId::from_random(u64::from(peer) << 20),
        layout: with_layout.then(|| layout().to_columns()),
        requests: vec![PullRequest {
            request_id: format!("d-{peer:04}-{round:04}").into(),
            transfer_id: format!("t-{peer:04}-{round:04}").into(),
            groups: vec![BlockList::run(8, 4)],
            grant: Some(Grant(u64::from(round))),
            end_token: None,
        }],
        extension: Some(PullExtension {
            revision: REVISION,
            features: 0,
            incarnation: Incarnation(7),
            generation: Generation(9),
            timeout: Duration::from_secs(60),
            weights: WeightVersion(3),
        }),
    };
    let mut bytes = Vec::new();
    pull.encode_compact(&mut bytes);
    bytes
}

/// One pull from its bytes to its last answer, and the blocks' return.
fn serve(
    table: &mut LayoutTable,
    sender: &mut Sender<Planner>,
    bytes: &[u8],
    id: u64,
) -> (bool, bool) {
    let now = Timestamp(id);
    let Ok(ToPrefill::Pull(pull)) = ToPrefill::decode(bytes, &Limits::default()) else {
        panic!("the test wrote a pull");
    };
    let Resolution::Ready { layout, echo } = table.resolve(&pull) else {
        panic!("a thousand peers fit the table");
    };
    let transfer = pull.requests[0].transfer_id.clone();
    let held = vec![BlockList::run(3, 4)];
    sender.hold(format!("p-{id:08}").into(), transfer, held, None, now).unwrap();
    sender.pull(
        ResolvedPull {
            id: PullId(id),
            reader: Reader { session: pull.session, tp_rank: 0 },
            expected_readers: 1,
            layout: Planner(layout),
            echo,
            generation: Some(Generation(9)),
            timeout: Duration::from_secs(60),
            weights: WeightVersion(3),
            requests: pull.requests,
        },
        now,
    );
    let (mut answered, mut given_back) = (false, false);
    while let Some(action) = sender.next_action() {
        match action {
            SenderAction::Write(start) => sender.write_done(start.write, WriteResult::Written, now),
            SenderAction::Answer { reply, .. } => answered = reply.status == Status::Finish,
            SenderAction::Finished { .. } => given_back = true,
            SenderAction::CancelWrite(_) => panic!("nothing is cancelled here"),
        }
    }
    (answered, given_back)
}

#[test]
fn l08_z01_a_thousand_peers_pull_a_thousand_times_in_flat_memory() {
    let topology = Topology { tp_rank: 0, tp_size: 1, pp_rank: 0, pp_size: 1 };
    let group = GroupSpec { kind: GroupKind::Attention, heads: Heads::Split(1), block_tokens: 16 };
    let mut table = LayoutTable::default();
    table.register(LocalLayout::new(topology, layout(), vec![group], 1)).unwrap();
    let mut sender = Sender::new(SenderConfig::default(), Incarnation(7), 0);
    let (mut filled, mut id) = (0, 0);
    for round in 0..ROUNDS {
        for peer in 0..PEERS {
            let bytes = pull(peer, round, round == 0);
            assert_eq!(serve(&mut table, &mut sender, &bytes, id), (true, true));
            id += 1;
        }
        if round == FILLED {
            filled = HELD.load(Relaxed);
        }
    }
    let grown = HELD.load(Relaxed) - filled;
    assert!(grown < 16 << 10, "{grown} bytes more after {ROUNDS} rounds");
    assert_eq!((sender.transfers(), sender.open_pulls(), sender.held()), (0, 0, 0));
}
