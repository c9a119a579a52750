//! Holds and loads: what every rank's node is asked, and how its ends come together.

use super::clock::monotonic_nanos;
use super::host::EngineHost;
use super::notice::Notice;
use kvbaton_actors::node::Load;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{BlockId, RequestId, TransferId};

/// A load that some rank has not ended.
#[derive(Debug)]
pub(super) struct Loading {
    started: u64,
    last: u64,
    blocks: u64,
    bytes: u64,
    hit_tokens: usize,
    failure: Option<LoadFailed>,
}

/// Why a load failed.
#[derive(Debug)]
pub(super) struct LoadFailed {
    /// In words.
    pub why: String,
    /// A reset of either engine cut it short: it is recomputed, never failed `[R04]`.
    pub is_reset: bool,
}

impl LoadFailed {
    pub fn by(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_reset: false }
    }
}

impl EngineHost {
    pub(super) fn hold(
        &mut self,
        id: &RequestId,
        transfer: &TransferId,
        blocks: &[BlockList],
        end: usize,
    ) {
        let request = id.as_str();
        self.sends.start(request, self.ranks.len(), Vec::new());
        for rank in 0..self.ranks.len() {
            let node = self.ranks[rank].1.node();
            let held = node.hold(id.clone(), transfer.clone(), blocks.to_vec(), Some(end as u32));
            if let Err(error) = held {
                self.send_ended(request, rank, &error.to_string());
            }
        }
        let at = monotonic_nanos();
        self.notices.push_back(Notice::Held { request: request.to_owned(), at });
    }

    pub(super) fn send_ended(&mut self, request: &str, rank: usize, how: &str) {
        let Some(ends) = self.sends.report(request, rank, |ends| ends.push(how.to_owned())) else {
            return;
        };
        self.scheduler.send_finished(&request.into());
        let how = ends.join(", ");
        self.notices.push_back(Notice::SendEnded { request: request.to_owned(), how });
    }

    /// Spoils the blocks that a load will fill, so that a byte which never comes shows.
    pub(super) fn expect_load(&mut self, request: &str, blocks: &[BlockList], hit_tokens: usize) {
        let (mut count, mut bytes) = (0, 0);
        for (group, list) in blocks.iter().enumerate() {
            let ids: Vec<BlockId> = list.iter().filter(|id| id.0 != 0).collect();
            self.belong(group, &ids);
            self.poison(group, &ids);
            let tensors = self.ranks.iter().flat_map(|(rank, _)| &rank.layout().tensors);
            let row: u64 = tensors.filter(|it| it.group == group).map(|it| it.page_size).sum();
            count += ids.len() as u64;
            bytes += row * ids.len() as u64;
        }
        let started = monotonic_nanos();
        let load =
            Loading { started, last: started, blocks: count, bytes, hit_tokens, failure: None };
        self.loads.start(request, self.ranks.len(), load);
    }

    pub(super) fn load(
        &self,
        request: RequestId,
        transfer: TransferId,
        blocks: Vec<BlockList>,
        end_token: Option<usize>,
    ) -> Option<Load> {
        let source = self.requests.get(request.as_str())?.source.as_ref()?;
        Some(Load {
            engine: source.engine.as_str().into(),
            bootstrap: source.bootstrap.as_str().into(),
            end_token: end_token.map(|end| end as u32),
            request,
            transfer,
            blocks,
        })
    }

    pub(super) fn start_loads(&mut self, loads: &[Load]) {
        for rank in 0..self.ranks.len() {
            let taken = self.ranks[rank].1.node().load(loads.to_vec());
            for (load, taken) in loads.iter().zip(taken) {
                if let Err(error) = taken {
                    let at = monotonic_nanos();
                    let failed = LoadFailed::by(error.to_string());
                    self.load_ended(load.request.as_str(), rank, at, Some(failed));
                }
            }
        }
    }

    /// One rank's load is over. When it failed, the other ranks need not go on.
    pub(super) fn load_ended(
        &mut self,
        request: &str,
        rank: usize,
        at: u64,
        failure: Option<LoadFailed>,
    ) {
        let failed = failure.is_some();
        let ended = self.loads.report(request, rank, |load| {
            load.last = load.last.max(at);
            let is_reset = [&load.failure, &failure].into_iter().flatten().any(|it| it.is_reset);
            load.failure = load.failure.take().or(failure);
            load.failure.iter_mut().for_each(|it| it.is_reset = is_reset);
        });
        let id = RequestId::from(request);
        let Some(load) = ended else {
            if failed && self.loads.contains(request) {
                for (_, rank) in &self.ranks {
                    rank.node().drop_loads(vec![id.clone()]);
                }
            }
            return;
        };
        let request = request.to_owned();
        let Loading { started, last: at, blocks, bytes, hit_tokens, failure } = load;
        match failure {
            None => {
                self.notices.push_back(Notice::Loaded {
                    request,
                    started,
                    at,
                    blocks,
                    bytes,
                    hit_tokens,
                });
                self.scheduler.load_finished(&id);
            }
            Some(LoadFailed { why, is_reset }) => {
                let recomputes = self.spec.recompute || is_reset;
                self.notices.push_back(Notice::LoadFailed { request, why, recomputes });
                if is_reset {
                    self.scheduler.load_cut_short(&id);
                } else {
                    self.scheduler.load_failed(&id);
                }
            }
        }
    }
}
