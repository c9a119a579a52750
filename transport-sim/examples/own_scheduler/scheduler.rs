//! The scheduler: a pool of blocks, first come first served. P "computes" a request by
//! filling its blocks with bytes that are a function of its transfer; D compares them.

use super::clients::{Ask, Desks};
use super::world::BLOCKS;
use futures_channel::mpsc::unbounded;
use futures_channel::oneshot;
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use kvbaton_actors::events::Event;
use kvbaton_actors::node::Load;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{Address, Bytes, RequestId, TransferId};
use kvbaton_core::layout::{Layout, Tensor, TensorKind, TensorSpec};
use kvbaton_core::plan::{GroupSpec, Heads, LocalLayout};
use kvbaton_core::receiver::LoadEnd;
use kvbaton_core::region::{GroupKind, MemoryRange};
use kvbaton_transport_sim::history::{Lane, What};
use kvbaton_transport_sim::memory::SimMemory;
use kvbaton_transport_sim::world::own::{ObservedNode, Process};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::rc::Rc;

const BLOCK: u64 = 512;
const KV: MemoryRange =
    MemoryRange { start: Address(0x7000_0000), len: Bytes(BLOCK * BLOCKS as u64) };

/// One layer, 8 tokens a block.
fn layout(process: &Process) -> LocalLayout {
    let tensor = Tensor {
        layer_name: "model.layers.0.self_attn.attn".into(),
        group: 0,
        storage: KV,
        offset: Bytes(0),
        shape: vec![u64::from(BLOCKS), 1, 8, 32],
        strides: vec![256, 256, 32, 1],
        element_size: Bytes(2),
        spec: TensorSpec { kind: TensorKind::Attention, page_size: Bytes(BLOCK) },
    };
    let layout = Layout::build(&[tensor], u64::from(BLOCKS), 1).expect("the tensor fits");
    let group = GroupSpec { kind: GroupKind::Attention, heads: Heads::Split(1), block_tokens: 8 };
    LocalLayout::new(process.config(0).topology, layout, vec![group], 1)
}

/// A request that has blocks.
struct Running {
    blocks: Vec<u32>,
    transfer: TransferId,
    done: Option<oneshot::Sender<bool>>,
}

struct Scheduler {
    process: Process,
    node: ObservedNode,
    bug: bool,
    free: Vec<u32>,
    waiting: VecDeque<Ask>,
    running: Rc<RefCell<BTreeMap<RequestId, Running>>>,
}

/// One life of an engine's process.
pub async fn life(process: Process, desks: Desks, bug: bool) {
    let node = ObservedNode::start(&process, 0, SimMemory::new(KV), layout(&process)).await;
    let running: Rc<RefCell<BTreeMap<RequestId, Running>>> = Rc::default();
    let (desk, mut asks) = unbounded();
    desks.open(process.engine(), desk);
    let left = running.clone();
    process.ready(vec![node.clone()], move || {
        left.borrow().keys().map(|request| format!("{request} has blocks").into()).collect()
    });
    let (free, waiting) = ((0..BLOCKS).rev().collect(), VecDeque::new());
    let mut it = Scheduler { process, node, bug, free, waiting, running };
    loop {
        let node = it.node.clone();
        match select(asks.next(), pin!(node.events())).await {
            Either::Left((Some(ask), _)) => it.waiting.push_back(ask),
            Either::Right((events, _)) if !events.is_empty() => {
                events.into_iter().for_each(|event| it.ended(event));
            }
            _ => return,
        }
        it.start().await;
    }
}

/// What a block of a transfer holds.
fn content(transfer: &TransferId, index: usize) -> Vec<u8> {
    let seed: u32 = transfer
        .as_str()
        .bytes()
        .fold(7, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    (0..BLOCK as u32).map(|at| (seed.wrapping_add(at * 13 + index as u32) >> 3) as u8).collect()
}

fn address(block: u32) -> Address {
    Address(KV.start.0 + u64::from(block) * BLOCK)
}

impl Scheduler {
    /// Starts what there are blocks for.
    async fn start(&mut self) {
        while self.waiting.front().is_some_and(|ask| ask.blocks as usize <= self.free.len()) {
            let ask = self.waiting.pop_front().expect("just seen");
            let blocks = self.free.split_off(self.free.len() - ask.blocks as usize);
            let Ask { request, transfer, source, done, .. } = ask;
            let running = Running { blocks: blocks.clone(), transfer: transfer.clone(), done };
            self.running.borrow_mut().insert(request.clone(), running);
            let lists: Vec<BlockList> = vec![blocks.iter().copied().collect()];
            let taken = if let Some((engine, bootstrap)) = source {
                let id = request.clone();
                let load = Load {
                    engine,
                    bootstrap,
                    request: id,
                    transfer,
                    blocks: lists,
                    end_token: None,
                };
                self.node.load(vec![load]).await.remove(0).is_ok()
            } else {
                let pages = self.node.memory().pages().expect("never unmapped");
                for (index, block) in blocks.iter().enumerate() {
                    pages.write(address(*block), &content(&transfer, index));
                }
                self.node.hold(request.clone(), transfer, lists, None).await.is_ok()
            };
            let held_by_node = taken && self.process.plan().side.sends();
            if !taken || (self.bug && held_by_node) {
                self.free(&request, false);
            }
        }
    }

    fn ended(&mut self, event: Event) {
        match event {
            Event::SendEnded { request, .. } => self.free(&request, false),
            Event::LoadEnded { request, end, .. } => {
                let loaded = end == LoadEnd::Loaded;
                if loaded {
                    self.compare(&request);
                }
                self.free(&request, loaded);
            }
        }
    }

    /// Looks at every byte that was loaded.
    fn compare(&self, request: &RequestId) {
        let running = self.running.borrow();
        let Some(Running { blocks, transfer, .. }) = running.get(request) else { return };
        let pages = self.node.memory().pages().expect("never unmapped");
        let (mut bytes, mut different) = (0, 0);
        for (index, block) in blocks.iter().enumerate() {
            let mut found = vec![0; BLOCK as usize];
            pages.read(address(*block), &mut found);
            let wrong = found.iter().zip(content(transfer, index)).filter(|(a, b)| **a != *b);
            (bytes, different) = (bytes + BLOCK, different + wrong.count() as u64);
        }
        let what = What::Compared { request: request.clone(), bytes, different };
        self.process.sim().note(Lane::Engine(self.process.engine()), what);
    }

    /// The blocks are free again.
    fn free(&mut self, request: &RequestId, loaded: bool) {
        let Some(running) = self.running.borrow_mut().remove(request) else { return };
        self.free.extend(running.blocks);
        if let Some(done) = running.done {
            let _ = done.send(loaded); // The client may have gone.
        }
    }
}
