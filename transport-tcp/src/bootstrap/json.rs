//! What travels, and its bounds `[Z01]`.

use crate::network::Endpoint;
use kvbaton_actors::transport::{
    Directory, EngineEntry, RankEntry, RankExtension, RankRegistration,
};
use kvbaton_core::ids::EngineId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// Ranks run from 0 to one below this.
pub(super) const MAX_RANKS: u32 = 4096;
/// Longest engine id, in bytes.
const MAX_ENGINE_ID: usize = 256;
/// Longest fingerprint, in bytes.
const MAX_FINGERPRINT: usize = 4096;

/// By tp rank, then pp rank.
pub(super) type ByRank<T> = BTreeMap<u32, BTreeMap<u32, T>>;

/// Body of `POST /register` and `DELETE /register`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Register {
    pub(super) engine_id: String,
    pub(super) dp_rank: u32,
    pub(super) tp_rank: u32,
    pub(super) pp_rank: u32,
    pub(super) addr: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kvbaton: Option<Extension>,
}

/// What only our own ranks say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Extension {
    pub(super) revision: u32,
    #[serde(with = "hex")]
    pub(super) features: u64,
    #[serde(with = "hex")]
    pub(super) incarnation: u64,
    #[serde(default)]
    pub(super) fingerprint: String,
    /// Sizes of the engine; left out by ranks that did not say.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) tp_size: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) pp_size: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(size: &u32) -> bool {
    *size == 0
}

/// One engine in the answer to `GET /query`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Engine {
    pub(super) engine_id: String,
    pub(super) worker_addr: ByRank<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) kvbaton: ByRank<Extension>,
}

/// The answer to `GET /query`: engines by dp rank.
pub(super) type Engines = BTreeMap<u32, Engine>;

/// 64-bit numbers as `"0x1f"`.
mod hex {
    use super::{Deserialize, Deserializer, Serializer};
    use serde::de::Error;

    pub(super) fn serialize<S: Serializer>(number: &u64, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&format!("{number:#x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
        let text = String::deserialize(d)?;
        let digits = text.strip_prefix("0x").filter(|digits| !digits.starts_with('+'));
        digits
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .ok_or_else(|| D::Error::custom("expected a 64-bit number as \"0x…\""))
    }
}

impl Register {
    /// Checks every bound.
    ///
    /// # Errors
    /// Which field is wrong, and how.
    pub(super) fn check(&self) -> Result<(), String> {
        check_engine_id(&self.engine_id)?;
        for (name, rank) in
            [("dp_rank", self.dp_rank), ("tp_rank", self.tp_rank), ("pp_rank", self.pp_rank)]
        {
            check_rank(name, rank)?;
        }
        check_address(&self.addr)?;
        self.kvbaton.as_ref().map_or(Ok(()), check_extension)
    }

    /// Bytes that this registration adds to the answer of a query, at most.
    pub(super) fn weight(&self) -> usize {
        // Every byte may be escaped (`\u0000`); 256 covers names, ranks and numbers.
        let fingerprint = self.kvbaton.as_ref().map_or(0, |e| e.fingerprint.len());
        256 + 6 * (self.engine_id.len() + self.addr.len() + fingerprint)
    }
}

fn check_engine_id(engine_id: &str) -> Result<(), String> {
    match engine_id.len() {
        0 => Err("engine_id: empty".to_owned()),
        len if len > MAX_ENGINE_ID => {
            Err(format!("engine_id: {len} bytes, the bound is {MAX_ENGINE_ID}"))
        }
        _ => Ok(()),
    }
}

fn check_rank(name: &str, rank: u32) -> Result<(), String> {
    if rank < MAX_RANKS {
        return Ok(());
    }
    Err(format!("{name}: {rank} is not below {MAX_RANKS}"))
}

fn check_address(address: &str) -> Result<(), String> {
    match Endpoint::parse(address, "tcp") {
        Ok(_) => Ok(()),
        Err(what) => Err(format!("addr: {what}; expected tcp://host:port")),
    }
}

fn check_extension(extension: &Extension) -> Result<(), String> {
    let len = extension.fingerprint.len();
    if len <= MAX_FINGERPRINT {
        return Ok(());
    }
    Err(format!("kvbaton.fingerprint: {len} bytes, the bound is {MAX_FINGERPRINT}"))
}

/// Turns a checked answer into a directory.
///
/// # Errors
/// Which entry is out of bounds, and how.
pub(super) fn into_directory(engines: Engines) -> Result<Directory, String> {
    let mut directory = Directory::new();
    for (dp_rank, engine) in engines {
        let entry =
            into_entry(dp_rank, engine).map_err(|what| format!("dp rank {dp_rank}: {what}"))?;
        directory.insert(dp_rank, entry);
    }
    Ok(directory)
}

fn into_entry(dp_rank: u32, mut engine: Engine) -> Result<EngineEntry, String> {
    check_rank("dp_rank", dp_rank)?;
    check_engine_id(&engine.engine_id)?;
    let mut ranks: BTreeMap<u32, BTreeMap<u32, RankEntry>> = BTreeMap::new();
    for (tp_rank, stages) in engine.worker_addr {
        check_rank("tp_rank", tp_rank)?;
        let entries = ranks.entry(tp_rank).or_default();
        for (pp_rank, address) in stages {
            check_rank("pp_rank", pp_rank)?;
            check_address(&address)?;
            let extension = engine.kvbaton.get_mut(&tp_rank).and_then(|s| s.remove(&pp_rank));
            extension.as_ref().map_or(Ok(()), check_extension)?;
            let extension = extension.map(RankExtension::from);
            entries.insert(pp_rank, RankEntry { address, extension });
        }
    }
    Ok(EngineEntry { engine_id: EngineId::from(engine.engine_id), ranks })
}

impl From<Extension> for RankExtension {
    fn from(e: Extension) -> Self {
        Self {
            revision: e.revision,
            features: e.features,
            incarnation: e.incarnation,
            fingerprint: e.fingerprint,
            sizes: (e.tp_size, e.pp_size),
        }
    }
}

impl From<RankRegistration> for Register {
    fn from(rank: RankRegistration) -> Self {
        let e = rank.extension;
        // Revision 0 is a stock rank: it says nothing of its own.
        let kvbaton = (e.revision > 0).then_some(Extension {
            revision: e.revision,
            features: e.features,
            incarnation: e.incarnation,
            fingerprint: e.fingerprint,
            tp_size: e.sizes.0,
            pp_size: e.sizes.1,
        });
        Self {
            engine_id: rank.engine_id.as_str().to_owned(),
            dp_rank: rank.dp_rank,
            tp_rank: rank.tp_rank,
            pp_rank: rank.pp_rank,
            addr: rank.address,
            kvbaton,
        }
    }
}
