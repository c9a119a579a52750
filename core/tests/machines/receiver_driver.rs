//! Drives a receiver, carries out nothing, and checks at every step what must always hold.

use crate::names::{request, session, transfer};
use kvbaton_core::blocks::BlockList;
use kvbaton_core::directory::{EngineRanks, OurRank, Rank};
use kvbaton_core::ids::{
    EngineId, Generation, Grant, Incarnation, LayoutId, RequestId, WeightVersion,
};
use kvbaton_core::receiver::{
    Form, LoadEnd, LoadError, LoadFailureReason, LoadKind, LoadSpec, Receiver, ReceiverAction,
    ReceiverConfig, Registered,
};
use kvbaton_core::sender::PullId;
use kvbaton_core::time::Timestamp;
use kvbaton_core::topology::Topology;
use kvbaton_core::wire::{
    DropTransfers, FailureReason, LayoutColumns, Pull, Reply, ReplyExtension, Status,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub const BOOTSTRAP: &str = "http://10.0.0.1:8998";
pub const FIRST: LayoutId = LayoutId(9);
pub const SECOND: LayoutId = LayoutId(11);

/// Whether a P rank is one of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ours,
    Stock,
}

/// P's ranks: `kinds[tp][pp]`, at `tcp://TP.PP`.
pub fn ranks(kinds: &[&[Kind]]) -> EngineRanks {
    let rank = |tp: usize, pp: usize, kind: Kind| Rank {
        address: address(tp, pp),
        ours: (kind == Kind::Ours).then_some(OurRank {
            revision: 1,
            features: 0,
            incarnation: Incarnation(77),
            sizes: (0, 0),
        }),
    };
    let stages = |tp: usize, row: &[Kind]| {
        row.iter().enumerate().map(|(pp, kind)| (pp as u32, rank(tp, pp, *kind))).collect()
    };
    kinds.iter().enumerate().map(|(tp, row)| (tp as u32, stages(tp, row))).collect()
}

pub fn address(tp: usize, pp: usize) -> Arc<str> {
    format!("tcp://{tp}.{pp}").into()
}

/// A reply with nothing in it.
pub fn reply(status: Status) -> Reply {
    Reply {
        status,
        ok: None,
        failed: None,
        message: None,
        layout_id: LayoutId::NONE,
        extension: None,
    }
}

/// A pull that was sent and has not had its last answer.
#[derive(Debug, Clone)]
pub struct Sent {
    pub address: Arc<str>,
    pub form: Form,
    pub pull: Pull,
}

/// A receiver and what was seen of it.
#[derive(Debug, Clone)]
pub struct ReceiverDriver {
    pub receiver: Receiver,
    pub now: Timestamp,
    next_grant: u64,
    running: BTreeMap<RequestId, Grant>,
    /// Open grants, and whether stock peers may write there too.
    pub open: BTreeMap<Grant, bool>,
    pub revoking: BTreeSet<Grant>,
    pub asked: Vec<Arc<str>>,
    pub pulls: BTreeMap<PullId, Sent>,
    /// Every pull ever sent.
    pub sent: Vec<PullId>,
    pub drops: Vec<(Arc<str>, DropTransfers)>,
    pub ended: Vec<(RequestId, LoadEnd)>,
}

impl ReceiverDriver {
    /// A D of one rank, registered, with default bounds.
    pub fn new() -> Self {
        Self::with(ReceiverConfig::default(), 1, 1)
    }

    /// The D rank (0, 0) of `tp_size` × `pp_size`.
    pub fn with(config: ReceiverConfig, tp_size: u32, pp_size: u32) -> Self {
        let topology = Topology { tp_rank: 0, tp_size, pp_rank: 0, pp_size };
        let mut driver = Self {
            receiver: Receiver::new(config, topology),
            now: Timestamp(0),
            next_grant: 1,
            running: BTreeMap::new(),
            open: BTreeMap::new(),
            revoking: BTreeSet::new(),
            asked: Vec::new(),
            pulls: BTreeMap::new(),
            sent: Vec::new(),
            drops: Vec::new(),
            ended: Vec::new(),
        };
        driver.register(FIRST);
        driver
    }

    pub fn register(&mut self, layout_id: LayoutId) {
        self.receiver.register(Registered {
            layout_id,
            generation: Generation(layout_id.0),
            columns: Arc::new(LayoutColumns {
                base_addrs: vec![layout_id.0],
                ..Default::default()
            }),
            session: session(1),
        });
    }

    /// The load that [`Self::load`] asks for.
    pub fn spec(&mut self, name: &str) -> LoadSpec {
        self.next_grant += 1;
        LoadSpec {
            request: request(name),
            transfer: transfer(&format!("t-{name}")),
            engine: EngineId::from("p"),
            bootstrap: BOOTSTRAP.into(),
            blocks: vec![BlockList::run(self.next_grant as u32 * 10, 4)],
            end_token: Some(64),
            grant: Grant(self.next_grant),
            kind: LoadKind::Load,
        }
    }

    pub fn accept(&mut self, spec: LoadSpec) -> Result<(), LoadError> {
        let taken = self.receiver.load(spec.clone(), self.now);
        if taken.is_ok() && spec.kind == LoadKind::Load {
            assert_eq!(self.running.insert(spec.request, spec.grant), None, "loads twice [P11]");
        }
        self.drain();
        taken
    }

    /// Takes a load and sends it.
    pub fn load(&mut self, name: &str) {
        let spec = self.spec(name);
        self.accept(spec).unwrap();
        self.flush();
    }

    pub fn release(&mut self, name: &str) {
        let mut spec = self.spec(name);
        spec.kind = LoadKind::Release;
        self.accept(spec).unwrap();
        self.flush();
    }

    pub fn flush(&mut self) {
        self.receiver.flush(self.now);
        self.drain();
    }

    /// The bootstrap server lists engine `p` with these ranks.
    pub fn discover(&mut self, kinds: &[&[Kind]]) {
        self.discovered(Ok(vec![(EngineId::from("p"), ranks(kinds))]));
    }

    pub fn discovered(&mut self, answer: Result<Vec<(EngineId, EngineRanks)>, String>) {
        self.asked.retain(|it| &**it != BOOTSTRAP);
        self.receiver.discovered(BOOTSTRAP, answer, self.now);
        self.drain();
    }

    pub fn drop_load(&mut self, name: &str) {
        self.receiver.drop_load(&request(name), self.now);
        self.drain();
    }

    pub fn set_weights(&mut self, version: u64) {
        self.receiver.set_weights(WeightVersion(version), self.now);
        self.drain();
    }

    pub fn abort_transfers(&mut self) {
        self.receiver.abort_transfers(self.now);
        self.drain();
    }

    pub fn unregister(&mut self) {
        self.receiver.unregister(self.now);
        self.drain();
    }

    /// Lets time pass, calling `tick` when it is due, as the caller must.
    pub fn wait_until(&mut self, until: Timestamp) {
        while let Some(due) = self.receiver.next_deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.receiver.tick(self.now);
            self.drain();
        }
        self.now = self.now.max(until);
    }

    /// The newest open pull to an address.
    pub fn pull_to(&self, tp: usize, pp: usize) -> PullId {
        let mut to = self.pulls.iter().filter(|(_, sent)| sent.address == address(tp, pp));
        *to.next_back().unwrap_or_else(|| panic!("no open pull to {tp}.{pp}")).0
    }

    pub fn reply(&mut self, pull: PullId, reply: Reply) {
        let last = reply.status == Status::Finish;
        self.receiver.reply(pull, reply, self.now);
        if last {
            self.pulls.remove(&pull);
        }
        self.drain();
    }

    /// The P rank wrote all of `names` and says so; `status` says whether that was all.
    pub fn ok(&mut self, pull: PullId, status: Status, names: &[&str]) {
        let ok = Some(names.iter().map(|name| request(name)).collect());
        self.reply(pull, Reply { ok, ..reply(status) });
    }

    /// One of our own P ranks failed `name`.
    pub fn failed(&mut self, pull: PullId, name: &str, why: FailureReason, settled: bool) {
        let extension = ReplyExtension {
            outcomes: vec![(request(name), why, settled)],
            ..ReplyExtension::default()
        };
        let failed = Some(vec![request(name)]);
        self.reply(pull, Reply { failed, extension: Some(extension), ..reply(Status::Finish) });
    }

    pub fn pull_failed(&mut self, pull: PullId, sent: bool) {
        self.receiver.pull_failed(pull, sent, "connection refused", self.now);
        self.pulls.remove(&pull);
        self.drain();
    }

    /// The data plane has revoked everything that it was asked to.
    pub fn revoke_all(&mut self) {
        for grant in std::mem::take(&mut self.revoking) {
            self.open.remove(&grant);
            self.receiver.revoked(grant);
        }
        self.drain();
    }

    pub fn drain(&mut self) {
        while let Some(action) = self.receiver.next_action() {
            match action {
                ReceiverAction::Discover { bootstrap } => {
                    assert!(!self.asked.contains(&bootstrap), "{bootstrap} is being asked already");
                    self.asked.push(bootstrap);
                }
                ReceiverAction::OpenGrant { grant, allow_ungranted, .. } => {
                    assert!(self.running.values().any(|it| *it == grant), "a grant of no load");
                    assert!(!self.revoking.contains(&grant), "opened while being revoked [G02]");
                    let before = self.open.insert(grant, allow_ungranted);
                    assert!(before.is_none_or(|before| !before && allow_ungranted));
                }
                ReceiverAction::Pull { id, address, form, pull } => {
                    self.check_pull(form, &pull);
                    self.sent.push(id);
                    let seen = self.pulls.insert(id, Sent { address, form, pull });
                    assert!(seen.is_none(), "a pull's name is new");
                }
                ReceiverAction::ClosePull(id) => {
                    self.pulls.remove(&id);
                }
                ReceiverAction::Drop { address, drop } => self.drops.push((address, drop)),
                ReceiverAction::Revoke(grant) => {
                    assert!(self.open.contains_key(&grant), "revokes what is not open");
                    assert!(self.revoking.insert(grant), "revokes twice");
                }
                ReceiverAction::Ended { request, end, .. } => {
                    let grant = self.running.remove(&request).expect("ends once [P08]");
                    assert!(!self.open.contains_key(&grant), "ends under an open grant [G02]");
                    self.ended.push((request, end));
                }
            }
        }
        assert_eq!(self.receiver.open_pulls(), self.pulls.len());
        assert!(self.receiver.loads() >= self.running.len());
    }

    fn check_pull(&self, form: Form, pull: &Pull) {
        assert!(!pull.requests.is_empty());
        let names: BTreeSet<_> = pull.requests.iter().map(|it| &it.request_id).collect();
        assert_eq!(names.len(), pull.requests.len(), "a pull names a request once [P11]");
        assert_eq!(pull.extension.is_some(), form == Form::Compact);
        for it in &pull.requests {
            if it.groups.is_empty() {
                assert_eq!(it.grant, None);
                continue;
            }
            let grant = self.running[&it.request_id];
            assert_eq!(it.grant, (form == Form::Compact).then_some(grant), "[G01]");
            let ungranted = self.open.get(&grant).expect("its grant is open first [G01]");
            assert!(form == Form::Compact || *ungranted, "a stock P could not write");
        }
    }

    /// How the loads of a request ended so far.
    pub fn ends(&self, name: &str) -> Vec<LoadEnd> {
        let of = self.ended.iter().filter(|(id, _)| *id == request(name));
        of.map(|(_, end)| end.clone()).collect()
    }

    /// Why the only load of a request failed.
    pub fn failure(&self, name: &str) -> Option<LoadFailureReason> {
        match &self.ends(name)[..] {
            [LoadEnd::Failed(failure)] => Some(failure.reason),
            _ => None,
        }
    }
}
