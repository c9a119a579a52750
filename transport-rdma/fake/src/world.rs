//! The state of every device, and what happens to a posted write.

use crate::bindings::*;
use crate::control::NewDevice;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One device and what a test told it to do.
pub(crate) struct DeviceState {
    pub(crate) name: String,
    /// Its `ibv_device`, never freed.
    pub(crate) raw: usize,
    pub(crate) spec: NewDevice,
    pub(crate) port_up: bool,
    pub(crate) gid: [u8; 16],
    /// Calls that fail: name, calls before it, error number.
    pub(crate) failing: Vec<(&'static str, u64, i32)>,
    /// Writes that fail: writes before it, status.
    pub(crate) bad_writes: Vec<(u64, u32)>,
    /// Whether posted writes wait.
    pub(crate) held: bool,
    pub(crate) calls: BTreeMap<&'static str, u64>,
    pub(crate) overruns: u64,
    /// Whether the flush of a failed queue pair never comes.
    pub(crate) loses_flushes: bool,
}

pub(crate) struct ContextState {
    pub(crate) device: usize,
    pub(crate) async_fd: i32,
    pub(crate) events: VecDeque<(u32, Event)>,
}

/// What an event is about.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    Port(i32),
    QueuePair(usize),
    Nothing,
}

pub(crate) struct QueuePairState {
    pub(crate) raw: usize,
    pub(crate) context: i32,
    pub(crate) domain: u32,
    pub(crate) completions: u32,
    pub(crate) state: u32,
    pub(crate) depth: u64,
    pub(crate) pieces: usize,
    pub(crate) inline: usize,
    /// Requests ever posted, and ever known to be over by who polled.
    pub(crate) posted: u64,
    pub(crate) retired: u64,
    pub(crate) peer: u32,
    pub(crate) peer_gid: [u8; 16],
    pub(crate) sends_from: u32,
    pub(crate) takes_from: u32,
    pub(crate) waiting: VecDeque<Request>,
}

/// A posted write.
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) serial: u64,
    pub(crate) signaled: bool,
    /// Address, length, key.
    pub(crate) pieces: Vec<(u64, u32, u32)>,
    /// The bytes of an inline request.
    pub(crate) inline: Option<Vec<u8>>,
    pub(crate) remote: u64,
    pub(crate) remote_key: u32,
}

pub(crate) struct CompletionState {
    pub(crate) raw: usize,
    pub(crate) context: i32,
    pub(crate) channel: Option<i32>,
    pub(crate) capacity: usize,
    pub(crate) entries: VecDeque<Entry>,
    pub(crate) armed: bool,
}

pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) status: u32,
    pub(crate) queue_pair: u32,
    pub(crate) serial: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct RegionState {
    pub(crate) domain: u32,
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) access: u32,
}

/// Everything.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) next: u32,
    pub(crate) devices: Vec<DeviceState>,
    pub(crate) contexts: BTreeMap<i32, ContextState>,
    pub(crate) domains: BTreeMap<u32, i32>,
    /// By key; a region's local and remote keys are the same.
    pub(crate) regions: BTreeMap<u32, RegionState>,
    pub(crate) queue_pairs: BTreeMap<u32, QueuePairState>,
    pub(crate) completions: BTreeMap<u32, CompletionState>,
    /// Queues with a notification, by the channel's descriptor.
    pub(crate) notifications: BTreeMap<i32, VecDeque<usize>>,
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);

/// Runs with the world locked.
pub(crate) fn with<R>(run: impl FnOnce(&mut World) -> R) -> R {
    let mut guard: MutexGuard<'_, Option<World>> =
        WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    run(guard.get_or_insert_with(World::default))
}

impl World {
    pub(crate) fn fresh(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    pub(crate) fn device_of(&mut self, context: i32) -> &mut DeviceState {
        let device = self.contexts[&context].device;
        &mut self.devices[device]
    }

    /// Counts a call; the error number if a test wants it to fail.
    pub(crate) fn failure(&mut self, context: i32, call: &'static str) -> Option<i32> {
        self.device_of(context).failure(call)
    }

    /// Tells every context of a device.
    pub(crate) fn emit(&mut self, device: usize, kind: u32, event: Event) {
        for context in self.contexts.values_mut().filter(|it| it.device == device) {
            context.events.push_back((kind, event));
            crate::objects::ring(context.async_fd);
        }
    }

    fn complete(&mut self, number: u32, request: &Request, status: u32) {
        if status == IBV_WC_SUCCESS && !request.signaled {
            return;
        }
        let completions = self.queue_pairs[&number].completions;
        let queue = self.completions.get_mut(&completions).expect("outlives its queue pairs");
        if queue.entries.len() >= queue.capacity {
            let context = queue.context;
            self.device_of(context).overruns += 1;
            let device = self.contexts[&context].device;
            return self.emit(device, IBV_EVENT_CQ_ERR, Event::Nothing);
        }
        let (id, serial) = (request.id, request.serial);
        queue.entries.push_back(Entry { id, status, queue_pair: number, serial });
        if let Some(channel) = queue.channel.filter(|_| std::mem::take(&mut queue.armed)) {
            let raw = queue.raw;
            self.notifications.entry(channel).or_default().push_back(raw);
            crate::objects::ring(channel);
        }
    }

    /// Any state → ERR: what waits is flushed.
    pub(crate) fn fail_queue_pair(&mut self, number: u32) {
        let Some(pair) = self.queue_pairs.get_mut(&number) else { return };
        pair.state = IBV_QPS_ERR;
        let (waiting, context) = (std::mem::take(&mut pair.waiting), pair.context);
        if self.device_of(context).loses_flushes {
            return;
        }
        for request in &waiting {
            self.complete(number, request, IBV_WC_WR_FLUSH_ERR);
        }
    }

    /// Carries out what waits at the queue pairs of a device.
    pub(crate) fn deliver(&mut self, device: usize) {
        let numbers: Vec<u32> = self
            .queue_pairs
            .iter()
            .filter(|(_, pair)| self.contexts[&pair.context].device == device)
            .map(|(number, _)| *number)
            .collect();
        numbers.into_iter().for_each(|number| self.run(number));
    }

    /// Carries out what waits at a queue pair, unless its device holds.
    pub(crate) fn run(&mut self, number: u32) {
        while let Some(pair) = self.queue_pairs.get_mut(&number) {
            let context = pair.context;
            if self.device_of(context).held {
                return;
            }
            let pair = self.queue_pairs.get_mut(&number).expect("found above");
            let Some(request) = pair.waiting.pop_front() else { return };
            let status = if pair.state == IBV_QPS_RTS {
                self.device_of(context).verdict().unwrap_or_else(|| self.write(number, &request))
            } else {
                IBV_WC_WR_FLUSH_ERR
            };
            self.complete(number, &request, status);
            if status != IBV_WC_SUCCESS {
                self.fail_queue_pair(number);
            }
        }
    }

    /// One write, checked as both adapters would.
    fn write(&mut self, number: u32, request: &Request) -> u32 {
        let pair = &self.queue_pairs[&number];
        let (domain, context) = (pair.domain, pair.context);
        let mut bytes = Vec::new();
        match &request.inline {
            Some(inline) => bytes.clone_from(inline),
            None => {
                for (address, len, key) in &request.pieces {
                    let region = self.regions.get(key).filter(|it| it.domain == domain);
                    if !region.is_some_and(|it| it.holds(*address, u64::from(*len))) {
                        return IBV_WC_LOC_PROT_ERR;
                    }
                    crate::objects::read(*address, *len as usize, &mut bytes);
                }
            }
        }
        let pair = &self.queue_pairs[&number];
        let own_gid = self.devices[self.contexts[&context].device].gid;
        let answers = self.queue_pairs.get(&pair.peer).filter(|peer| {
            let device = &self.devices[self.contexts[&peer.context].device];
            device.port_up
                && device.gid == pair.peer_gid
                && peer.peer == number
                && peer.peer_gid == own_gid
                && peer.takes_from == pair.sends_from
                && matches!(peer.state, IBV_QPS_RTR | IBV_QPS_RTS)
        });
        let own_port = self.devices[self.contexts[&context].device].port_up;
        let Some(peer) = answers.filter(|_| own_port) else { return IBV_WC_RETRY_EXC_ERR };
        let (peer_number, peer_context) = (pair.peer, peer.context);
        let region = self.regions.get(&request.remote_key).filter(|it| {
            it.domain == peer.domain
                && it.access & IBV_ACCESS_REMOTE_WRITE != 0
                && it.holds(request.remote, bytes.len() as u64)
        });
        if region.is_none() {
            let raw = self.queue_pairs[&peer_number].raw;
            self.fail_queue_pair(peer_number);
            let device = self.contexts[&peer_context].device;
            self.emit(device, IBV_EVENT_QP_ACCESS_ERR, Event::QueuePair(raw));
            return IBV_WC_REM_ACCESS_ERR;
        }
        crate::objects::write(request.remote, &bytes);
        IBV_WC_SUCCESS
    }
}

impl RegionState {
    fn holds(&self, start: u64, len: u64) -> bool {
        start >= self.start
            && start.checked_add(len).is_some_and(|end| end <= self.start + self.len)
    }
}

impl DeviceState {
    pub(crate) fn failure(&mut self, call: &'static str) -> Option<i32> {
        *self.calls.entry(call).or_default() += 1;
        let index = self.failing.iter_mut().position(|(name, before, _)| {
            let due = *name == call && *before == 0;
            if *name == call && !due {
                *before -= 1;
            }
            due
        })?;
        Some(self.failing.remove(index).2)
    }

    /// The status that a test wants for the next write.
    fn verdict(&mut self) -> Option<u32> {
        *self.calls.entry("write").or_default() += 1;
        let index = self.bad_writes.iter_mut().position(|(before, _)| {
            let due = *before == 0;
            *before = before.saturating_sub(1);
            due
        })?;
        Some(self.bad_writes.remove(index).1)
    }
}
