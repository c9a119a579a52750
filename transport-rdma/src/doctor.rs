//! What is wrong with RDMA on this machine, in plain words, and how to mend it.

use crate::config::{DeviceChoice, RdmaConfig};
use crate::gpu::NoGpu;
use crate::locality::numa_node_of_device;
use crate::plane::RdmaDataPlane;
use crate::verbs::{Context, Verbs, VerbsError, devices};
use futures_util::future::BoxFuture;
use kvbaton_actors::transport::{
    DataPlane, GrantedRows, PeerKind, Rejection, TransportError, Write, WriteId, WriteOutcome,
};
use kvbaton_core::ids::{Address, Bytes, Generation, Grant, SessionAddress};
use kvbaton_core::region::{Copy, MemoryRange};
use std::sync::Arc;
use std::time::Duration;

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be.
    Fine,
    /// It works, and could be better.
    Hint,
    /// It does not work.
    Wrong,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What was found, and what to do about it.
    pub text: String,
}

impl Finding {
    fn fine(text: impl Into<String>) -> Self {
        Self { severity: Severity::Fine, text: text.into() }
    }

    fn hint(text: impl Into<String>) -> Self {
        Self { severity: Severity::Hint, text: text.into() }
    }

    fn wrong(text: impl Into<String>) -> Self {
        Self { severity: Severity::Wrong, text: text.into() }
    }
}

/// Waits for a future of a data plane.
pub type Wait<'a> = &'a dyn Fn(BoxFuture<'static, WriteOutcome>) -> WriteOutcome;

/// Looks at libraries, limits and devices, tries a write over each device, and asks `peers`
/// (sessions of RDMA nodes) whether they would connect.
#[must_use]
pub fn examine(
    verbs: Result<Verbs, VerbsError>,
    config: &RdmaConfig,
    peers: &[SessionAddress],
    wait: Wait<'_>,
) -> Vec<Finding> {
    let verbs = match verbs {
        Ok(verbs) => verbs,
        Err(error) => return vec![Finding::wrong(error.to_string())],
    };
    let mut findings = vec![Finding::fine("libibverbs is there"), memlock()];
    let names = match devices(&verbs) {
        Ok(names) if !names.is_empty() => names,
        Ok(_) => {
            findings.push(Finding::wrong(VerbsError::NoDevice.to_string()));
            return findings;
        }
        Err(error) => {
            findings.push(Finding::wrong(error.to_string()));
            return findings;
        }
    };
    for choice in chosen(&names, config) {
        device(&verbs, &choice, config, wait, &mut findings);
    }
    for peer in peers {
        findings.push(ask(&verbs, config, peer, wait));
    }
    findings
}

fn chosen(names: &[String], config: &RdmaConfig) -> Vec<DeviceChoice> {
    if config.devices.is_empty() {
        return names.iter().map(DeviceChoice::named).collect();
    }
    config.devices.clone()
}

/// The limit on locked memory.
fn memlock() -> Finding {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live structure.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    if result != 0 {
        return Finding::hint("the memlock limit cannot be read");
    }
    if limit.rlim_cur == libc::RLIM_INFINITY || may_lock_all() {
        return Finding::fine("memory may be pinned without limit");
    }
    let mib = limit.rlim_cur >> 20;
    let text = format!(
        "only {mib} MiB of memory may be pinned, and all registered KV is: `ulimit -l unlimited`, LimitMEMLOCK=infinity, or --ulimit memlock=-1 \
         for a container"
    );
    if mib < 1024 { Finding::wrong(text) } else { Finding::hint(text) }
}

/// Whether this process has CAP_IPC_LOCK, to which the limit does not apply.
fn may_lock_all() -> bool {
    const IPC_LOCK: u64 = 1 << 14;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|it| u64::from_str_radix(it.trim(), 16).ok());
    effective.is_some_and(|it| it & IPC_LOCK != 0)
}

fn device(
    verbs: &Verbs,
    choice: &DeviceChoice,
    config: &RdmaConfig,
    wait: Wait<'_>,
    findings: &mut Vec<Finding>,
) {
    /// The code of 4096 bytes.
    const LARGEST_MTU: u32 = 5;
    let name = &choice.name;
    let context = match Context::open(verbs, name) {
        Ok(context) => context,
        Err(error) => return findings.push(Finding::wrong(error.to_string())),
    };
    let port = match context.port(choice.port) {
        Ok(port) => port,
        Err(error) => return findings.push(Finding::wrong(error.to_string())),
    };
    if !port.active {
        let (number, state) = (port.number, port.state);
        let error = VerbsError::PortDown { device: name.as_str().into(), port: number, state };
        return findings.push(Finding::wrong(error.to_string()));
    }
    let gid = match context.choose_gid(&port, choice.gid_index) {
        Ok(gid) => gid,
        Err(error) => return findings.push(Finding::wrong(error.to_string())),
    };
    let (limits, kind) = (context.limits(), if port.ethernet { "RoCE v2" } else { "InfiniBand" });
    let node =
        numa_node_of_device(name).map_or("no NUMA node".into(), |it| format!("NUMA node {it}"));
    findings.push(Finding::fine(format!(
        "{name} port {} is active: {kind}, address {} at GID index {}, {node}, regions of up to \
         {} bytes",
        port.number,
        gid.gid.ip(),
        gid.index,
        limits.max_mr_size
    )));
    if port.mtu < LARGEST_MTU {
        let mtu = 128_u32 << port.mtu;
        findings.push(Finding::hint(format!(
            "{name} sends packets of {mtu} bytes: give its interface an MTU of 4200 or more for \
             4096, on every node and switch of the way"
        )));
    }
    drop(context);
    findings.push(match try_device(verbs, choice, config, wait) {
        Ok(()) => Finding::fine(format!("{name}: a trial write arrived")),
        Err(why) => Finding::wrong(format!("{name}: a trial write did not arrive: {why}")),
    });
}

/// Two data planes on one device, and a write from one to the other.
fn try_device(
    verbs: &Verbs,
    choice: &DeviceChoice,
    config: &RdmaConfig,
    wait: Wait<'_>,
) -> Result<(), String> {
    let trial = Trial::new(verbs, vec![choice.clone()], config).map_err(|e| e.to_string())?;
    let target = Trial::new(verbs, vec![choice.clone()], config).map_err(|e| e.to_string())?;
    let grant = Grant(1);
    let rows = vec![target.range];
    let granted =
        GrantedRows { grant, generation: target.generation, rows, allow_ungranted: false };
    target.plane.open_grant(granted).map_err(|error| error.to_string())?;
    let write = trial.write(target.plane.session(), target.generation, &target);
    match wait(trial.plane.write(write)) {
        WriteOutcome::Written if *target.memory == *trial.memory => Ok(()),
        WriteOutcome::Written => Err("other bytes arrived".into()),
        WriteOutcome::Rejected(why) => Err(why.to_string()),
        WriteOutcome::Failed { error, .. } => Err(error.to_string()),
    }
}

/// Whether a peer would connect: it makes queue pairs, and then says that it does not know
/// the registration that we made up.
fn ask(verbs: &Verbs, config: &RdmaConfig, peer: &SessionAddress, wait: Wait<'_>) -> Finding {
    let trial = match Trial::new(verbs, config.devices.clone(), config) {
        Ok(trial) => trial,
        Err(error) => return Finding::wrong(format!("{peer} was not asked: {error}")),
    };
    let write = trial.write(peer.clone(), Generation(2), &trial);
    match wait(trial.plane.write(write)) {
        WriteOutcome::Rejected(Rejection::StaleGeneration) => {
            Finding::fine(format!("{peer} answers, has the same key, and has queue pairs for us"))
        }
        WriteOutcome::Failed { error, .. } => Finding::wrong(error.to_string()),
        other => Finding::wrong(format!("{peer} answers oddly: {other:?}")),
    }
}

/// A data plane with a little memory.
struct Trial {
    // Dropped before the memory.
    plane: Arc<RdmaDataPlane>,
    generation: Generation,
    keys: Vec<u8>,
    range: MemoryRange,
    memory: Box<[u8]>,
}

impl Trial {
    fn new(
        verbs: &Verbs,
        devices: Vec<DeviceChoice>,
        config: &RdmaConfig,
    ) -> Result<Self, TransportError> {
        const LEN: usize = 1 << 20;
        let config = RdmaConfig { devices, port: 0, ..config.clone() };
        let plane = RdmaDataPlane::open_with(verbs, Box::new(NoGpu), config)?;
        let memory: Box<[u8]> = (0..LEN).map(|at| (at % 251) as u8).collect();
        let start = Address(memory.as_ptr().expose_provenance() as u64);
        let range = MemoryRange { start, len: Bytes(LEN as u64) };
        // SAFETY: the plane, and with it the registration, is dropped before the memory; what
        // a trial write changes is read once that has ended.
        let registration = unsafe { plane.register(&[range]) }?;
        let (generation, keys) = (registration.generation, registration.keys);
        Ok(Self { plane, generation, keys, range, memory })
    }

    fn write(&self, session: SessionAddress, generation: Generation, to: &Self) -> Write {
        let copy =
            Copy { source: self.range.start, destination: to.range.start, len: self.range.len };
        Write {
            id: WriteId(1),
            session,
            kind: PeerKind::Kvbaton,
            generation: Some(generation),
            grant: Some(Grant(1)),
            keys: to.keys.as_slice().into(),
            copies: vec![copy],
            timeout: Duration::from_secs(10),
        }
    }
}
