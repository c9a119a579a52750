//! From accepted loads to pulls.

use super::load::{LoadFailureReason, LoadId, Phase, Waiting};
use super::{Form, OpenPull, Receiver, ReceiverAction, Registered, Timer, Wait};
use crate::directory::{EngineRanks, Rank};
use crate::ids::{EngineId, RequestId};
use crate::planted::{self, Bug};
use crate::sender::PullId;
use crate::time::Timestamp;
use crate::topology::pull_targets;
use crate::wire::{Pull, PullExtension, PullRequest, REVISION};
use std::collections::BTreeMap;
use std::time::Duration;

impl Receiver {
    /// Sends what was accepted since the last call: one pull per P rank for all requests
    /// of an engine.
    pub fn flush(&mut self, now: Timestamp) {
        let mut by_engine: BTreeMap<EngineId, Vec<LoadId>> = BTreeMap::new();
        for id in std::mem::take(&mut self.staged) {
            let Some(load) = self.loads.get_mut(&id) else { continue };
            if !matches!(load.phase, Phase::Staged | Phase::Quarantined) {
                continue;
            }
            if self.peers.ranks(&load.spec.engine).is_some() {
                by_engine.entry(load.spec.engine.clone()).or_default().push(id);
                continue;
            }
            load.phase = Phase::Discovering;
            let bootstrap = load.spec.bootstrap.clone();
            if self.asking.insert(bootstrap.clone()) {
                self.actions.push_back(ReceiverAction::Discover { bootstrap });
            } else {
                load.asked_late = true;
            }
        }
        for (engine, loads) in by_engine {
            self.pull_from(&engine, &loads, now);
        }
    }

    fn pull_from(&mut self, engine: &EngineId, loads: &[LoadId], now: Timestamp) {
        let ranks = self.peers.ranks(engine).expect("looked up by the caller");
        let targets = match self.targets(&ranks) {
            Ok(targets) => targets,
            Err(text) => {
                self.peers.forget_engine(engine);
                for id in loads {
                    self.fail(*id, LoadFailureReason::Incompatible, &text, Wait::No, now);
                }
                return;
            }
        };
        let stock = targets.iter().any(|rank| rank.ours.is_none());
        for batch in self.batches(loads, stock, now) {
            for rank in &targets {
                let open = OpenPull {
                    with_layout: !self.peers.has_echoed(&rank.address),
                    address: rank.address.clone(),
                    engine: engine.clone(),
                    incarnation: rank.ours.map(|it| it.incarnation).unwrap_or_default(),
                    form: if rank.ours.is_some() { Form::Compact } else { Form::Stock },
                    open: batch.clone(),
                    lingering: BTreeMap::new(),
                    writes_until: now,
                    repeats: 0,
                };
                self.await_answers(&open, rank);
                self.send_pull(open, now);
            }
        }
    }

    /// Opens the loads' grants, and spreads them over as few pulls as name no request twice:
    /// a release and a new load may bear the same name `[P11]`.
    fn batches(
        &mut self,
        loads: &[LoadId],
        stock: bool,
        now: Timestamp,
    ) -> Vec<BTreeMap<RequestId, LoadId>> {
        let mut batches: Vec<BTreeMap<RequestId, LoadId>> = Vec::new();
        for id in loads {
            if !self.open_load(*id, stock, now) {
                continue;
            }
            let request = self.loads[id].spec.request.clone();
            match batches.iter_mut().find(|batch| !batch.contains_key(&request)) {
                Some(batch) => drop(batch.insert(request, *id)),
                None => batches.push(BTreeMap::from([(request, *id)])),
            }
        }
        batches
    }

    /// Opens the load's grant. False when its blocks must wait for a stock writer's end.
    fn open_load(&mut self, id: LoadId, stock: bool, now: Timestamp) -> bool {
        let Some(load) = self.loads.get_mut(&id) else { return false };
        let wanted = load.wants_kv();
        if stock
            && wanted
            && !planted::is(Bug::QuarantineSkipped)
            && let Some(until) = self.quarantine.blocks_until(&load.spec.blocks, now)
        {
            load.phase = Phase::Quarantined;
            self.timers.set(Timer::Quarantine(id), until);
            return false;
        }
        load.phase = Phase::Pulling;
        if wanted {
            let generation = self.registered.as_ref().map(|it| it.generation).unwrap_or_default();
            self.actions.push_back(ReceiverAction::OpenGrant {
                grant: load.spec.grant,
                generation,
                blocks: load.spec.blocks.clone(),
                allow_ungranted: stock,
            });
        }
        true
    }

    /// Notes for each load that it waits for `rank`.
    fn await_answers(&mut self, open: &OpenPull, rank: &Rank) {
        let waiting = Waiting { pull: PullId(self.next_pull), ours: rank.ours };
        for id in open.open.values() {
            let load = self.loads.get_mut(id).expect("opened by the caller");
            load.outstanding.insert(rank.address.clone(), waiting);
        }
    }

    pub(super) fn send_pull(&mut self, mut open: OpenPull, now: Timestamp) {
        let Some(registered) = self.registered.clone() else { return };
        open.writes_until = now + self.config.load_timeout;
        let id = PullId(self.next_pull);
        self.next_pull += 1;
        for load in open.open.values() {
            let load = self.loads.get_mut(load);
            if let Some(waiting) = load.and_then(|it| it.outstanding.get_mut(&open.address)) {
                waiting.pull = id;
            }
        }
        let pull = self.message(&registered, &open, now);
        let (address, form) = (open.address.clone(), open.form);
        self.pulls.insert(id, open);
        self.actions.push_back(ReceiverAction::Pull { id, address, form, pull });
    }

    fn message(&self, registered: &Registered, open: &OpenPull, now: Timestamp) -> Pull {
        let compact = open.form == Form::Compact;
        let mut timeout = self.config.load_timeout;
        let mut in_order: Vec<LoadId> = open.open.values().copied().collect();
        in_order.sort_unstable();
        let mut requests = Vec::with_capacity(in_order.len());
        for id in in_order {
            let Some(load) = self.loads.get(&id) else { continue };
            timeout = timeout.min(load.deadline.since(now));
            let wanted = load.wants_kv();
            requests.push(PullRequest {
                request_id: load.spec.request.clone(),
                transfer_id: load.spec.transfer.clone(),
                groups: if wanted { load.spec.blocks.clone() } else { Vec::new() },
                grant: (compact && wanted).then_some(load.spec.grant),
                end_token: if compact { load.spec.end_token } else { None },
            });
        }
        Pull {
            session: registered.session.clone(),
            tp_size: self.topology.tp_size,
            tp_rank: self.topology.tp_rank,
            pp_size: self.topology.pp_size,
            layout_id: registered.layout_id,
            layout: open.with_layout.then(|| (*registered.columns).clone()),
            requests,
            extension: compact.then(|| PullExtension {
                revision: REVISION,
                features: self.config.features,
                incarnation: open.incarnation,
                generation: registered.generation,
                // Zero would mean that D did not say.
                timeout: timeout.max(Duration::from_millis(1)),
                weights: self.weights,
            }),
        }
    }

    /// The P ranks that hold a part of what this rank needs `[A02, A04]`.
    fn targets(&self, ranks: &EngineRanks) -> Result<Vec<Rank>, String> {
        let (tp_size, pp_size) = complete(ranks)?;
        let pairs = pull_targets(self.topology, tp_size, pp_size).map_err(|it| it.to_string())?;
        let mut targets: BTreeMap<&str, &Rank> = BTreeMap::new();
        for (tp_rank, pp_rank) in pairs {
            let rank = &ranks[&tp_rank][&pp_rank];
            if targets.insert(&rank.address, rank).is_some() {
                return Err(format!(
                    "two prefill ranks are registered at {}; give each an address of its own",
                    rank.address
                ));
            }
        }
        Ok(targets.into_values().cloned().collect())
    }
}

/// The tensor- and pipeline-parallel sizes, if no rank is missing: loading from the others alone would
/// leave a part of the KV unwritten.
fn complete(ranks: &EngineRanks) -> Result<(u32, u32), String> {
    let tp_size = ranks.len() as u32;
    let pp_size = ranks.values().map(|stages| stages.len() as u32).max().unwrap_or(0);
    let all = || ranks.values().flat_map(BTreeMap::values);
    let said = all().filter_map(|rank| rank.ours.map(|ours| ours.sizes)).find(|it| *it != (0, 0));
    let whole = tp_size > 0
        && pp_size > 0
        && ranks.keys().copied().eq(0..tp_size)
        && ranks.values().all(|stages| stages.keys().copied().eq(0..pp_size));
    let partial = planted::is(Bug::PartialDirectoryTaken);
    if whole && (partial || said.is_none_or(|sizes| sizes == (tp_size, pp_size))) {
        return Ok((tp_size, pp_size));
    }
    let known: Vec<String> = ranks
        .iter()
        .flat_map(|(tp_rank, stages)| stages.keys().map(move |pp| format!("tp {tp_rank} pp {pp}")))
        .collect();
    let of = said.map(|(tp, pp)| format!(" of tp {tp} × pp {pp}")).unwrap_or_default();
    Err(format!(
        "the prefill's ranks are incomplete (registered{of}: {}); it is still starting, or a \
         rank died",
        known.join(", ")
    ))
}
