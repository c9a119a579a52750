//! The devices of a node, as rails that its writes are spread over.

use crate::config::{DeviceChoice, MAX_RAILS, RdmaConfig};
use crate::locality;
use crate::verbs::{
    AsyncEvent, Channel, CompletionQueue, Context, Endpoint, GidEntry, MemoryRegion, Port,
    ProtectionDomain, Verbs, VerbsError, devices,
};
use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::region::MemoryRange;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, PoisonError, RwLock};

/// Where a port is, as long as it carries data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) port: Port,
    pub(crate) gid: GidEntry,
}

/// One open device.
pub(crate) struct Rail {
    pub(crate) index: usize,
    pub(crate) domain: Arc<ProtectionDomain>,
    choice: DeviceChoice,
    place: RwLock<Result<Place, VerbsError>>,
    /// Counts what happened to the port: queue pairs made before are suspect.
    changes: AtomicU64,
    /// What peers write to, to prove that a path works.
    pub(crate) scratch: Scratch,
    /// Of queue pairs that only take writes: nothing ever completes there.
    pub(crate) sink: Arc<CompletionQueue>,
}

/// A few registered bytes that mean nothing.
pub(crate) struct Scratch {
    // Dropped first: nobody writes to the bytes after that.
    region: MemoryRegion,
    bytes: Box<[AtomicU64; 8]>,
}

impl Scratch {
    fn new(domain: &Arc<ProtectionDomain>) -> Result<Self, VerbsError> {
        let bytes: Box<[AtomicU64; 8]> = Box::default();
        let start = Address(bytes.as_ptr().expose_provenance() as u64);
        let len = Bytes(size_of_val(&*bytes) as u64);
        // SAFETY: the bytes live longer than the region and mean nothing.
        let region = unsafe { domain.register(MemoryRange { start, len }, None) }?;
        Ok(Self { region, bytes })
    }

    pub(crate) fn address(&self) -> u64 {
        self.bytes.as_ptr().expose_provenance() as u64
    }

    pub(crate) fn local_key(&self) -> u32 {
        self.region.local_key()
    }

    pub(crate) fn remote_key(&self) -> u32 {
        self.region.remote_key()
    }
}

impl Rail {
    fn open(verbs: &Verbs, index: usize, choice: DeviceChoice) -> Result<Self, VerbsError> {
        let context = Context::open(verbs, &choice.name)?;
        let domain = ProtectionDomain::new(&context)?;
        let scratch = Scratch::new(&domain)?;
        let sink = CompletionQueue::new(&Channel::new(&context)?, 1)?;
        let place = RwLock::new(Ok(look(&context, &choice)?));
        Ok(Self { index, domain, choice, place, changes: AtomicU64::new(0), scratch, sink })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        self.domain.context()
    }

    pub(crate) fn name(&self) -> &str {
        &self.choice.name
    }

    /// Where its port is.
    pub(crate) fn place(&self) -> Result<Place, VerbsError> {
        self.place.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often its port changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    /// Takes in what the device says; true if the port changed.
    pub(crate) fn take_events(&self) -> bool {
        let mut changed = false;
        while let Some(event) = self.context().next_event() {
            let ours = |port: u8| port == self.choice.port;
            match event {
                AsyncEvent::PortUp(port)
                | AsyncEvent::PortDown(port)
                | AsyncEvent::GidChange(port)
                    if !ours(port) => {}
                AsyncEvent::PortUp(_)
                | AsyncEvent::PortDown(_)
                | AsyncEvent::GidChange(_)
                | AsyncEvent::DeviceGone => {
                    let now = look(self.context(), &self.choice);
                    match &now {
                        Ok(place) => tracing::info!(
                            device = self.name(), gid = ?place.gid.gid, ?event, "the port changed"
                        ),
                        Err(error) => tracing::warn!(device = self.name(), %error, ?event),
                    }
                    *self.place.write().unwrap_or_else(PoisonError::into_inner) = now;
                    self.changes.fetch_add(1, SeqCst);
                    changed = true;
                }
                // Completions tell what these mean for a write.
                AsyncEvent::QueuePair(_)
                | AsyncEvent::Refused(_)
                | AsyncEvent::CompletionQueue
                | AsyncEvent::Other => tracing::debug!(device = self.name(), ?event),
            }
        }
        changed
    }
}

fn look(context: &Context, choice: &DeviceChoice) -> Result<Place, VerbsError> {
    let port = context.port(choice.port)?;
    if !port.active {
        let device = context.name().clone();
        return Err(VerbsError::PortDown { device, port: port.number, state: port.state });
    }
    let gid = context.choose_gid(&port, choice.gid_index)?;
    Ok(Place { port, gid })
}

/// Opens the configured devices; or, with none configured, those that work.
pub(crate) fn open_rails(verbs: &Verbs, config: &RdmaConfig) -> Result<Vec<Arc<Rail>>, VerbsError> {
    if !config.devices.is_empty() {
        let open = |(index, choice): (usize, &DeviceChoice)| {
            Rail::open(verbs, index, choice.clone()).map(Arc::new)
        };
        return config.devices.iter().enumerate().map(open).collect();
    }
    let mut names = devices(verbs)?;
    if let Some(node) = config.numa_node {
        names = locality::nearest(names, node, locality::numa_node_of_device);
    }
    let mut rails = Vec::new();
    let mut first_error = None;
    for name in names {
        if rails.len() == MAX_RAILS {
            break;
        }
        match Rail::open(verbs, rails.len(), DeviceChoice::named(&name)) {
            Ok(rail) => rails.push(Arc::new(rail)),
            Err(error) => {
                tracing::info!(device = name, %error, "not used");
                first_error.get_or_insert(error);
            }
        }
    }
    if rails.is_empty() {
        return Err(first_error.unwrap_or(VerbsError::NoDevice));
    }
    Ok(rails)
}

/// The own rail for each queue pair that a peer offers: the one whose address has most in
/// common with the peer's, since devices of one network reach each other; in turns where
/// several do.
pub(crate) fn match_rails(own: &[(usize, GidEntry)], peer: &[Endpoint]) -> Vec<usize> {
    let common = |a: [u8; 16], b: [u8; 16]| {
        let differs = a.iter().zip(&b).position(|(a, b)| a != b);
        differs.map_or(128, |at| at * 8 + (a[at] ^ b[at]).leading_zeros() as usize)
    };
    let mut used = vec![0_usize; own.len()];
    let choose = |endpoint: &Endpoint| {
        let best = (0..own.len())
            .min_by_key(|at| {
                let common = common(own[*at].1.gid.0, endpoint.gid.0);
                // The last byte names hosts: all of one /24 are equally near.
                (std::cmp::Reverse(common.min(120)), used[*at], *at)
            })
            .unwrap_or(0);
        used[best] += 1;
        own[best].0
    };
    peer.iter().map(choose).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{Gid, GidKind};

    fn gid(ip: [u8; 4]) -> Gid {
        Gid(std::net::Ipv4Addr::from(ip).to_ipv6_mapped().octets())
    }

    #[test]
    fn f68_queue_pairs_stay_on_the_network_of_their_peers() {
        let own = |index, ip| {
            let kind = GidKind::RoceV2;
            (index, GidEntry { index: 3, gid: gid(ip), kind, interface: 1 })
        };
        let peer = |ip| Endpoint { number: 1, first_packet: 2, gid: gid(ip), lid: 0, mtu: 3 };
        let rails = [own(0, [10, 1, 0, 5]), own(2, [10, 2, 0, 5])];
        let peers = [peer([10, 2, 0, 9]), peer([10, 1, 0, 9]), peer([10, 1, 0, 9])];
        assert_eq!(match_rails(&rails, &peers), [2, 0, 0]);
        let rails = [own(0, [10, 1, 0, 5]), own(1, [10, 1, 0, 6])];
        let peers = [peer([10, 1, 0, 9]), peer([10, 1, 0, 8]), peer([10, 1, 0, 9])];
        assert_eq!(match_rails(&rails, &peers), [0, 1, 0], "in turns");
    }
}
