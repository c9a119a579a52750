//! What tests tell the devices to do.

use crate::bindings::{
    IBV_EVENT_DEVICE_FATAL, IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR,
    IBV_EVENT_QP_FATAL, IBV_QPS_ERR, ibv_device,
};
use crate::objects::{number, zeroed};
use crate::world::{DeviceState, Event, World, with};

/// What a new device is like.
#[derive(Debug, Clone)]
pub struct NewDevice {
    /// Longest memory region.
    pub max_mr_size: u64,
    /// Requests of a queue.
    pub max_qp_wr: i32,
    /// Pieces of a request.
    pub max_sge: i32,
    /// Entries of a completion queue.
    pub max_cqe: i32,
    /// Bytes that a request may carry itself.
    pub max_inline: u32,
    /// Whether it takes DMA buffers of other drivers.
    pub dmabuf: bool,
    /// Last number of its address 10.66.0.0/16; 0 takes the next one.
    pub address: u16,
}

impl Default for NewDevice {
    fn default() -> Self {
        Self {
            max_mr_size: 1 << 40,
            max_qp_wr: 16_384,
            max_sge: 30,
            max_cqe: 1 << 20,
            max_inline: 220,
            dmabuf: true,
            address: 0,
        }
    }
}

/// Devices of one test; names are unique in the process.
pub struct Fabric {
    devices: Vec<Device>,
}

impl Fabric {
    /// So many ordinary devices.
    #[must_use]
    pub fn new(devices: usize) -> Self {
        Self::with(vec![NewDevice::default(); devices])
    }

    /// Devices that are like this.
    #[must_use]
    pub fn with(devices: Vec<NewDevice>) -> Self {
        let add = |spec| with(|world| Device { index: world.add_device(spec) });
        Self { devices: devices.into_iter().map(add).collect() }
    }

    /// One of them.
    #[must_use]
    pub fn device(&self, index: usize) -> &Device {
        &self.devices[index]
    }

    /// Their names.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.devices.iter().map(Device::name).collect()
    }
}

/// Objects of a device that were made and not destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Live {
    /// Open contexts.
    pub contexts: usize,
    /// Memory regions.
    pub regions: usize,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Completion queues.
    pub completion_queues: usize,
}

/// One device.
pub struct Device {
    index: usize,
}

impl Device {
    fn edit<R>(&self, edit: impl FnOnce(&mut DeviceState) -> R) -> R {
        with(|world| edit(&mut world.devices[self.index]))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.edit(|it| it.name.clone())
    }

    /// After `before` more calls of this name, one fails. Requests count for
    /// `ibv_post_send`, not calls.
    pub fn fail_call(&self, call: &'static str, before: u64, errno: i32) {
        self.edit(|it| it.failing.push((call, before, errno)));
    }

    /// After `before` more writes, one ends with this status.
    pub fn fail_write(&self, before: u64, status: u32) {
        self.edit(|it| it.bad_writes.push((before, status)));
    }

    /// How often a function was called; `write` counts writes carried out.
    #[must_use]
    pub fn calls(&self, call: &str) -> u64 {
        self.edit(|it| it.calls.get(call).copied().unwrap_or(0))
    }

    /// Posted writes wait from now on.
    pub fn hold(&self) {
        self.edit(|it| it.held = true);
    }

    /// Carries out what waits, and what comes.
    pub fn release(&self) {
        with(|world| {
            world.devices[self.index].held = false;
            world.deliver(self.index);
        });
    }

    /// Queue pairs that fail lose what was posted instead of flushing it.
    pub fn lose_flushes(&self) {
        self.edit(|it| it.loses_flushes = true);
    }

    /// Takes the link away or brings it back.
    pub fn set_port(&self, up: bool) {
        let kind = if up { IBV_EVENT_PORT_ACTIVE } else { IBV_EVENT_PORT_ERR };
        with(|world| {
            world.devices[self.index].port_up = up;
            world.emit(self.index, kind, Event::Port(1));
        });
    }

    /// Gives the port another address.
    pub fn change_gid(&self) {
        with(|world| {
            world.devices[self.index].gid[15] ^= 0x80;
            world.emit(self.index, IBV_EVENT_GID_CHANGE, Event::Port(1));
        });
    }

    /// Breaks every queue pair of the device.
    pub fn break_queue_pairs(&self) {
        with(|world| {
            let contexts = &world.contexts;
            let of_device =
                |context: i32| contexts.get(&context).is_some_and(|it| it.device == self.index);
            let broken: Vec<(u32, usize)> = world
                .queue_pairs
                .iter()
                .filter(|(_, pair)| of_device(pair.context) && pair.state != IBV_QPS_ERR)
                .map(|(number, pair)| (*number, pair.raw))
                .collect();
            for (number, raw) in broken {
                world.fail_queue_pair(number);
                world.emit(self.index, IBV_EVENT_QP_FATAL, Event::QueuePair(raw));
            }
        });
    }

    /// Says that the device is gone.
    pub fn remove(&self) {
        self.edit(|it| it.port_up = false);
        self.break_queue_pairs();
        with(|world| world.emit(self.index, IBV_EVENT_DEVICE_FATAL, Event::Nothing));
    }

    /// Completions that a completion queue had no room for.
    #[must_use]
    pub fn overruns(&self) -> u64 {
        self.edit(|it| it.overruns)
    }

    /// Requests that were posted and are not over.
    #[must_use]
    pub fn waiting(&self) -> usize {
        with(|world| {
            let here = |context: &i32| world.contexts[context].device == self.index;
            let pairs = world.queue_pairs.values().filter(|it| here(&it.context));
            pairs.map(|it| it.waiting.len()).sum()
        })
    }

    /// What is left of it.
    #[must_use]
    pub fn live(&self) -> Live {
        with(|world| {
            let here = |context: &i32| world.contexts[context].device == self.index;
            Live {
                contexts: world.contexts.values().filter(|it| it.device == self.index).count(),
                regions: world
                    .regions
                    .values()
                    .filter(|it| world.domains.get(&it.domain).is_some_and(here))
                    .count(),
                queue_pairs: world.queue_pairs.values().filter(|it| here(&it.context)).count(),
                completion_queues: world
                    .completions
                    .values()
                    .filter(|it| here(&it.context))
                    .count(),
            }
        })
    }
}

impl World {
    /// Adds a device; its index.
    pub(crate) fn add_device(&mut self, spec: NewDevice) -> usize {
        let index = self.devices.len();
        let name = format!("fake{index}");
        // SAFETY: arrays of numbers and function pointers that may be null.
        let mut device = unsafe { zeroed::<ibv_device>() };
        for (to, from) in device.name.iter_mut().zip(name.bytes()) {
            *to = from as _;
        }
        let address = if spec.address == 0 { index as u16 + 1 } else { spec.address };
        let mut gid = [0; 16];
        gid[10..12].fill(0xff);
        gid[12..14].copy_from_slice(&[10, 66]);
        gid[14..].copy_from_slice(&address.to_be_bytes());
        self.devices.push(DeviceState {
            name,
            raw: number(Box::into_raw(device)),
            spec,
            port_up: true,
            gid,
            failing: Vec::new(),
            bad_writes: Vec::new(),
            held: false,
            calls: Default::default(),
            overruns: 0,
            loses_flushes: false,
        });
        index
    }
}
