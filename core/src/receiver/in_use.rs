//! What keeps D's memory in use, for who waits until nothing does `[S01]`.

use super::Receiver;
use super::load::{Load, Phase};
use crate::ids::{EngineId, RequestId, TransferId};
use crate::time::Timestamp;

/// One load, to whose blocks bytes may come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadInUse<'a> {
    /// D's request.
    pub request: &'a RequestId,
    /// The transfer.
    pub transfer: &'a TransferId,
    /// P's engine.
    pub engine: &'a EngineId,
    /// What the load waits for.
    pub state: LoadUse,
    /// Addresses of P ranks that have not answered.
    pub outstanding: Vec<&'a str>,
    /// When it was asked for.
    pub since: Timestamp,
}

/// What a load waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoadUse {
    /// To be sent at the next flush.
    Flush,
    /// The bootstrap server.
    Bootstrap,
    /// The end of an earlier stock writer of its blocks `[G03]`.
    EarlierWriter,
    /// P's answers.
    Prefill,
    /// The data plane, which revokes its grant `[G02]`.
    Revoke,
}

impl Receiver {
    /// Loads that have not ended `[S01]`. Releases touch no memory and are not listed.
    pub fn in_use(&self) -> impl Iterator<Item = LoadInUse<'_>> {
        let loading = self.loads.values().filter(|load| load.wants_kv());
        loading.map(|load| LoadInUse {
            request: &load.spec.request,
            transfer: &load.spec.transfer,
            engine: &load.spec.engine,
            state: waits_for(load),
            outstanding: load.outstanding.keys().map(|it| &**it).collect(),
            since: load.deadline - self.config.load_timeout,
        })
    }
}

fn waits_for(load: &Load) -> LoadUse {
    match load.phase {
        Phase::Staged => LoadUse::Flush,
        Phase::Discovering => LoadUse::Bootstrap,
        Phase::Quarantined => LoadUse::EarlierWriter,
        Phase::Pulling => LoadUse::Prefill,
        Phase::Revoking => LoadUse::Revoke,
    }
}
