//! From accepted loads to pulls.

use super::load::{LoadFailureReason, Phase};
use super::{Form, LoadKind, OpenPull, Receiver, ReceiverAction, Registered, Timer};
use crate::directory::{EngineRanks, OurRank, Rank};
use crate::ids::{EngineId, RequestId};
use crate::sender::PullId;
use crate::time::Timestamp;
use crate::topology::pull_targets;
use crate::wire::{Pull, PullExtension, PullRequest, REVISION};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Receiver {
    /// Sends what was accepted since the last call: one pull per P rank for all requests
    /// of an engine.
    pub fn flush(&mut self, now: Timestamp) {
        let mut by_engine: BTreeMap<EngineId, Vec<RequestId>> = BTreeMap::new();
        for request in std::mem::take(&mut self.staged) {
            let Some(load) = self.loads.get_mut(&request) else { continue };
            if !matches!(load.phase, Phase::Staged | Phase::Quarantined) {
                continue;
            }
            if self.peers.ranks(&load.spec.engine).is_some() {
                by_engine.entry(load.spec.engine.clone()).or_default().push(request);
                continue;
            }
            load.phase = Phase::Discovering;
            let bootstrap = load.spec.bootstrap.clone();
            let asked = ReceiverAction::Discover { bootstrap };
            if !self.actions.contains(&asked) {
                self.actions.push_back(asked);
            }
        }
        for (engine, requests) in by_engine {
            self.pull_from(&engine, requests, now);
        }
    }

    fn pull_from(&mut self, engine: &EngineId, requests: Vec<RequestId>, now: Timestamp) {
        let ranks = self.peers.ranks(engine).expect("looked up by the caller");
        let targets = match self.targets(&ranks) {
            Ok(targets) => targets,
            Err(message) => {
                self.peers.forget_engine(engine);
                for request in requests {
                    let message = format!("request {request}: {message}");
                    self.fail(&request, LoadFailureReason::Incompatible, message, now);
                }
                return;
            }
        };
        let stock = targets.iter().any(|rank| rank.ours.is_none());
        let requests: Vec<RequestId> =
            requests.into_iter().filter(|id| self.open_load(id, &targets, stock, now)).collect();
        if requests.is_empty() {
            return;
        }
        for rank in targets {
            let form = if rank.ours.is_some() { Form::Compact } else { Form::Stock };
            let open = OpenPull {
                with_layout: !self.peers.has_echoed(&rank.address),
                address: rank.address,
                engine: engine.clone(),
                form,
                open: requests.clone(),
                repeats: 0,
            };
            self.send_pull(open, now);
        }
    }

    /// Opens the load's grant and notes whom it waits for. False when it must wait.
    fn open_load(&mut self, id: &RequestId, targets: &[Rank], stock: bool, now: Timestamp) -> bool {
        let Some(load) = self.loads.get_mut(id) else { return false };
        if stock && let Some(until) = self.quarantine.blocks_until(&load.spec.blocks, now) {
            load.phase = Phase::Quarantined;
            self.timers.set(Timer::Quarantine(id.clone()), until);
            return false;
        }
        load.phase = Phase::Pulling;
        load.outstanding = targets.iter().map(|rank| rank.address.clone()).collect();
        if load.spec.kind == LoadKind::Load {
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

    pub(super) fn send_pull(&mut self, open: OpenPull, now: Timestamp) {
        let Some(registered) = self.registered.clone() else { return };
        let id = PullId(self.next_pull);
        self.next_pull += 1;
        let ours = self.peers.ours(&open.engine, &open.address);
        let pull = self.message(&registered, &open, ours, now);
        let (address, form) = (open.address.clone(), open.form);
        self.pulls.insert(id, open);
        self.actions.push_back(ReceiverAction::Pull { id, address, form, pull });
    }

    fn message(
        &self,
        registered: &Registered,
        open: &OpenPull,
        ours: Option<OurRank>,
        now: Timestamp,
    ) -> Pull {
        let compact = open.form == Form::Compact;
        let mut timeout = self.config.load_timeout;
        let mut requests = Vec::with_capacity(open.open.len());
        for id in &open.open {
            let Some(load) = self.loads.get(id) else { continue };
            timeout = timeout.min(load.deadline.since(now));
            let wanted = load.spec.kind == LoadKind::Load;
            requests.push(PullRequest {
                request_id: id.clone(),
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
                features: 0,
                incarnation: ours.map(|it| it.incarnation).unwrap_or_default(),
                generation: registered.generation,
                timeout,
            }),
        }
    }

    /// The P ranks that hold a part of what this rank needs `[A02, A04]`.
    fn targets(&self, ranks: &EngineRanks) -> Result<Vec<Rank>, String> {
        let tp_size = ranks.len() as u32;
        let pp_size = ranks.values().next().map_or(0, |stages| stages.len() as u32);
        let whole = ranks.keys().copied().eq(0..tp_size)
            && ranks.values().all(|stages| stages.keys().copied().eq(0..pp_size));
        if !whole || tp_size == 0 || pp_size == 0 {
            let known = ranks.iter().flat_map(|(tp, it)| it.keys().map(move |pp| (tp, pp)));
            let known: Vec<String> = known.map(|(tp, pp)| format!("tp {tp} pp {pp}")).collect();
            return Err(format!(
                "the prefill's ranks are incomplete (registered: {}); it is still starting, \
                 or a rank died",
                known.join(", ")
            ));
        }
        let pairs = pull_targets(self.topology, tp_size, pp_size).map_err(|it| it.to_string())?;
        let mut targets: Vec<Rank> =
            pairs.into_iter().map(|(tp, pp)| ranks[&tp][&pp].clone()).collect();
        targets.sort_by(|left, right| left.address.cmp(&right.address));
        targets.dedup_by(|left, right| left.address == right.address);
        Ok(targets)
    }

    pub(super) fn address_of(&self, pull: PullId) -> Option<Arc<str>> {
        self.pulls.get(&pull).map(|open| open.address.clone())
    }
}
