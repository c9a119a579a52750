//! A stock P rank: pulls come in, are waited for, written, answered.

use super::layouts::{Found, Layouts};
use super::node::Setup;
use super::transfers::{Held, Transfer, Transfers};
use crate::control::SimControl;
use futures_channel::mpsc::{UnboundedReceiver, unbounded};
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use kvbaton_actors::events::{Event, EventQueue};
use kvbaton_actors::runtime;
use kvbaton_actors::transport::{
    Answer, ControlPlane, DataPlane, Inbound, PeerKind, Write, WriteId, WriteOutcome,
};
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{LayoutId, RequestId, TransferId};
use kvbaton_core::plan::{BlockRequest, PlanScratch, PreparedLayout, TokenEnds};
use kvbaton_core::region::Copy;
use kvbaton_core::sender::Ended;
use kvbaton_core::wire::{FailureReason, Limits, Pull, Reply, Status, ToPrefill};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How often an expired hold that is being read looks again.
const AGAIN: Duration = Duration::from_millis(50);

/// One rank of a stock P.
pub struct Prefill {
    setup: Setup,
    events: EventQueue,
    state: RefCell<State>,
}

struct State {
    layouts: Layouts,
    transfers: Transfers,
    scratch: PlanScratch,
    pulls: u64,
    writes: u64,
    next_write: u64,
}

/// What became of the requests of a pull that got ready together.
#[derive(Default)]
struct Sent {
    ok: Vec<RequestId>,
    failed: Vec<RequestId>,
    message: Option<String>,
}

impl Sent {
    fn fail(&mut self, request: &RequestId, why: &str) {
        self.failed.push(request.clone());
        self.message.get_or_insert_with(|| why.into());
    }
}

fn reply(status: Status, message: Option<String>) -> Reply {
    Reply { status, ok: None, failed: None, message, layout_id: LayoutId::NONE, extension: None }
}

fn give(answer: &Answer, reply: &Reply) {
    let mut bytes = Vec::new();
    reply.encode(&mut bytes);
    answer(bytes.into());
}

fn some(requests: Vec<RequestId>) -> Option<Vec<RequestId>> {
    (!requests.is_empty()).then_some(requests)
}

impl Prefill {
    /// Pulls that are taken up at once.
    pub const TASKS: usize = 20;

    pub(super) fn new(setup: Setup, events: EventQueue) -> Self {
        let state = State {
            layouts: Layouts::new(setup.kind, setup.bounds().peer_layouts),
            transfers: Transfers::default(),
            scratch: PlanScratch::default(),
            pulls: 0,
            writes: 0,
            next_write: 0,
        };
        Self { setup, events, state: RefCell::new(state) }
    }

    /// Listens, and serves what comes.
    pub(super) async fn listen(self: &Rc<Self>, control: &SimControl) -> String {
        let (inbox, arrivals) = unbounded::<Inbound>();
        let queue = Rc::new(move |inbound| drop(inbox.unbounded_send(inbound)));
        let arrivals = Rc::new(tokio::sync::Mutex::new(arrivals));
        for _ in 0..Self::TASKS {
            runtime::spawn_local(self.clone().work(arrivals.clone()));
        }
        control.listen(queue).await.expect("simulated addresses are free")
    }

    async fn work(self: Rc<Self>, arrivals: Rc<tokio::sync::Mutex<UnboundedReceiver<Inbound>>>) {
        loop {
            let next = arrivals.lock().await.next().await;
            let Some(inbound) = next else { return };
            self.state.borrow_mut().pulls += 1;
            self.serve(inbound).await;
            self.state.borrow_mut().pulls -= 1;
        }
    }

    async fn serve(&self, inbound: Inbound) {
        match ToPrefill::decode(&inbound.payload, &Limits::default()) {
            Ok(ToPrefill::Pull(pull)) if pull.extension.is_none() => {
                self.pull(&pull, &inbound.answer).await;
            }
            // Messages of our own form lack all the fields that it knows.
            _ => {
                let missing = "Object missing required field `remote_hostname`";
                give(&inbound.answer, &reply(Status::Error, Some(missing.into())));
            }
        }
    }

    async fn pull(&self, pull: &Pull, answer: &Answer) {
        let found = self.state.borrow_mut().layouts.find(&self.setup.local, pull);
        let (layout, echo) = match found {
            Found::Ready(layout, echo) => (layout, echo),
            Found::Miss => {
                let text = format!("layout {} of {} is not kept", pull.layout_id, pull.session);
                return give(answer, &reply(Status::LayoutMiss, Some(text)));
            }
            Found::Refused(why) => return give(answer, &reply(Status::Error, Some(why))),
        };
        let mut open = BTreeMap::new();
        // A pull without requests is never answered.
        let mut waiting = FuturesUnordered::new();
        for (index, request) in pull.requests.iter().enumerate() {
            let transfer = self.state.borrow_mut().transfers.get_or_make(&request.transfer_id);
            open.insert(index, transfer.clone());
            waiting.push(transfer.ready.clone().map(move |_| index));
        }
        while !waiting.is_empty() {
            let Ok(first) = runtime::timeout(self.setup.patience(), waiting.next()).await else {
                let failed = open.keys().map(|at| pull.requests[*at].request_id.clone()).collect();
                let text = "the prefill was not ready in time".into();
                let late = Reply {
                    failed: Some(failed),
                    layout_id: echo,
                    ..reply(Status::Finish, Some(text))
                };
                return give(answer, &late);
            };
            let mut ready = Vec::from_iter(first);
            while let Some(Some(next)) = waiting.next().now_or_never() {
                ready.push(next);
            }
            let ready = ready.into_iter().filter_map(|at| Some((at, open.remove(&at)?))).collect();
            let status = if waiting.is_empty() { Status::Finish } else { Status::Continue };
            let Sent { ok, failed, message } = self.send(pull, &layout, ready).await;
            let answered = Reply {
                ok: some(ok),
                failed: some(failed),
                layout_id: echo,
                ..reply(status, message)
            };
            give(answer, &answered);
        }
    }

    /// Writes what got ready together. What has expired or was sent meanwhile is not
    /// mentioned in the answer.
    async fn send(
        &self,
        pull: &Pull,
        layout: &PreparedLayout,
        mut ready: Vec<(usize, Rc<Transfer>)>,
    ) -> Sent {
        let mut sent = Sent::default();
        let mut copies = Vec::new();
        ready.retain(|(at, transfer)| {
            let state = &mut *self.state.borrow_mut();
            let wanted = &pull.requests[*at];
            if !state.transfers.knows(&wanted.transfer_id, transfer) {
                return false;
            }
            transfer.begin();
            if transfer.need.get() == 0 {
                transfer.need.set(self.readers(pull));
            }
            let held = transfer.held().expect("it is ready");
            let planned = plan(layout, &held, &wanted.groups, &mut state.scratch, &mut copies);
            match planned {
                Ok(()) => sent.ok.push(wanted.request_id.clone()),
                Err(why) => sent.fail(&wanted.request_id, &why),
            }
            true
        });
        if !copies.is_empty()
            && let Err(why) = self.write(pull, copies).await
        {
            for request in std::mem::take(&mut sent.ok) {
                sent.fail(&request, &why);
            }
        }
        for (at, transfer) in ready {
            let wanted = &pull.requests[at];
            if transfer.end(!sent.failed.contains(&wanted.request_id)) {
                self.give_back(&wanted.transfer_id, Ended::Sent);
            }
        }
        sent
    }

    /// D ranks that read each transfer of this rank: all that pair with it, in every stage
    /// when the two sides have different numbers of stages.
    fn readers(&self, pull: &Pull) -> u32 {
        let own = self.setup.local.topology;
        let ranks = own.paired_tp_ranks(pull.tp_size).expect("the layouts fit").len() as u32;
        let all_stages = pull.pp_size > 1 && pull.pp_size != own.pp_size;
        ranks * if all_stages { pull.pp_size } else { 1 }
    }

    async fn write(&self, pull: &Pull, copies: Vec<Copy>) -> Result<(), String> {
        let id = {
            let mut state = self.state.borrow_mut();
            state.writes += 1;
            state.next_write += 1;
            WriteId(state.next_write)
        };
        let written = self.setup.data.write(Write {
            id,
            session: pull.session.clone(),
            kind: PeerKind::Mooncake,
            generation: None,
            grant: None,
            keys: Arc::default(),
            copies,
            timeout: Duration::from_millis(self.setup.bounds().write_ms),
        });
        let outcome = written.await;
        self.state.borrow_mut().writes -= 1;
        match outcome {
            WriteOutcome::Written => Ok(()),
            WriteOutcome::Rejected(why) => Err(why.to_string()),
            WriteOutcome::Failed { error, .. } => Err(error.to_string()),
        }
    }

    fn give_back(&self, id: &TransferId, ended: Ended) {
        let removed = self.state.borrow_mut().transfers.remove(id);
        if let Some(held) = removed.and_then(|it| it.held()) {
            let (request, transfer) = (held.request, id.clone());
            self.events.push(Event::SendEnded { request, transfer, ended });
        }
    }

    pub(super) fn started(&self, transfer: &TransferId) {
        self.state.borrow_mut().transfers.get_or_make(transfer);
    }

    pub(super) fn hold(
        self: &Rc<Self>,
        request: RequestId,
        transfer: TransferId,
        blocks: Vec<BlockList>,
    ) {
        let held = Held { request, blocks };
        let held = self.state.borrow_mut().transfers.hold(&transfer, held);
        let this = self.clone();
        runtime::spawn_local(async move {
            runtime::sleep(Duration::from_millis(this.setup.bounds().hold_ms)).await;
            while held.is_sending() {
                runtime::sleep(AGAIN).await;
            }
            if this.state.borrow().transfers.knows(&transfer, &held) {
                this.give_back(&transfer, Ended::Failed(FailureReason::Expired));
            }
        });
    }

    pub(super) fn abort(&self, transfer: &TransferId) {
        self.state.borrow_mut().transfers.abort(transfer);
    }

    /// (held, pulls, writes, transfers, layouts).
    pub(super) fn counts(&self) -> [u64; 5] {
        let state = self.state.borrow();
        let (held, known) = (state.transfers.held(), state.transfers.len());
        [held as u64, state.pulls, state.writes, known as u64, state.layouts.len() as u64]
    }
}

/// Appends the copies of one request. The tail of P's blocks goes to D, by count; a pull
/// without blocks gets none.
fn plan(
    layout: &PreparedLayout,
    held: &Held,
    wanted: &[BlockList],
    scratch: &mut PlanScratch,
    out: &mut Vec<Copy>,
) -> Result<(), String> {
    if wanted.iter().all(BlockList::is_empty) {
        return Ok(());
    }
    let ends = TokenEnds { producer: None, consumer: None };
    let request = BlockRequest { local: &held.blocks, remote: wanted, ends };
    layout.plan(request, scratch, out).map(drop).map_err(|why| why.to_string())
}
