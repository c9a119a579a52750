//! Devices and their ports.

use super::bindings::{
    IBV_LINK_LAYER_ETHERNET, IBV_PORT_ACTIVE, IBV_PORT_ARMED, IBV_PORT_DOWN, IBV_PORT_INIT,
    ibv_context, ibv_device_attr, ibv_gid_entry, ibv_port_attr,
};
use super::error::{VerbsError, last_errno};
use super::gid::{Gid, GidEntry, GidKind};
use super::table::{Table, Verbs};
use std::ffi::CStr;
use std::os::fd::RawFd;
use std::sync::Arc;

/// The names of all devices, in the library's order.
///
/// # Errors
/// When the list cannot be had.
pub fn devices(verbs: &Verbs) -> Result<Vec<String>, VerbsError> {
    DeviceList::get(&verbs.0).map(|list| list.names())
}

/// The library's list of devices, freed when dropped.
struct DeviceList<'a> {
    table: &'a Table,
    first: *mut *mut super::bindings::ibv_device,
    count: usize,
}

impl<'a> DeviceList<'a> {
    fn get(table: &'a Table) -> Result<Self, VerbsError> {
        let mut count = 0;
        // SAFETY: a pointer to a live number.
        let first = unsafe { (table.get_device_list)(&raw mut count) };
        if first.is_null() {
            let (device, errno) = ("(all)".into(), last_errno());
            return Err(match errno {
                // Without the kernel's module there is not even a list.
                libc::ENOSYS => VerbsError::NoDevice,
                errno => VerbsError::call("ibv_get_device_list", &device, "", errno),
            });
        }
        Ok(Self { table, first, count: usize::try_from(count).unwrap_or(0) })
    }

    fn device(&self, index: usize) -> *mut super::bindings::ibv_device {
        debug_assert!(index < self.count);
        // SAFETY: the list has `count` entries and lives as long as `self`.
        unsafe { *self.first.add(index) }
    }

    fn name(&self, index: usize) -> String {
        // SAFETY: an entry of the list; its name is terminated and lives as long.
        let name = unsafe { CStr::from_ptr((self.table.get_device_name)(self.device(index))) };
        name.to_string_lossy().into_owned()
    }

    fn names(&self) -> Vec<String> {
        (0..self.count).map(|index| self.name(index)).collect()
    }
}

impl Drop for DeviceList<'_> {
    fn drop(&mut self) {
        // SAFETY: got from the library, freed once.
        unsafe { (self.table.free_device_list)(self.first) };
    }
}

/// What a device can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Longest memory region, in bytes.
    pub max_mr_size: u64,
    /// Memory regions.
    pub max_mr: u32,
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests of a queue.
    pub max_qp_wr: u32,
    /// Pieces of a work request.
    pub max_sge: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Ports.
    pub ports: u8,
}

/// A port's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// Its number, from 1.
    pub number: u8,
    /// Whether data can flow.
    pub active: bool,
    /// The state's name.
    pub state: &'static str,
    /// Whether it is Ethernet (RoCE) rather than InfiniBand.
    pub ethernet: bool,
    /// Largest packet, as the library encodes it (3 is 1024 bytes, 5 is 4096).
    pub mtu: u32,
    /// Longest message, in bytes.
    pub max_message: u32,
    /// Local id on InfiniBand; 0 on Ethernet.
    pub lid: u16,
    /// Entries of its GID table.
    pub gids: u32,
}

/// An open device.
pub struct Context {
    pub(super) table: Arc<Table>,
    pub(super) raw: *mut ibv_context,
    pub(super) name: Arc<str>,
    limits: DeviceLimits,
}

// SAFETY: rdma-core's objects may be used from any thread, concurrently.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Context").field(&self.name).finish()
    }
}

impl Context {
    /// Opens a device by name.
    ///
    /// # Errors
    /// When it does not exist or may not be opened.
    pub fn open(verbs: &Verbs, name: &str) -> Result<Arc<Self>, VerbsError> {
        let table = verbs.0.clone();
        let list = DeviceList::get(&table)?;
        let names = list.names();
        if names.is_empty() {
            return Err(VerbsError::NoDevice);
        }
        let index = names.iter().position(|it| it == name).ok_or_else(|| {
            VerbsError::UnknownDevice { wanted: name.into(), there: names.join(", ") }
        })?;
        // SAFETY: an entry of a live list.
        let raw = unsafe { (table.open_device)(list.device(index)) };
        let shared: Arc<str> = name.into();
        if raw.is_null() {
            return Err(VerbsError::call("ibv_open_device", &shared, "", last_errno()));
        }
        drop(list);
        let mut context = Self { table, raw, name: shared, limits: DeviceLimits::NONE };
        context.limits = context.query_limits()?;
        super::events::unblock(context.async_fd())
            .map_err(|errno| VerbsError::call("fcntl", &context.name, "async events", errno))?;
        Ok(Arc::new(context))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// What it can do.
    #[must_use]
    pub const fn limits(&self) -> DeviceLimits {
        self.limits
    }

    /// Readable while an asynchronous event waits.
    #[must_use]
    pub fn async_fd(&self) -> RawFd {
        // SAFETY: the context is open.
        unsafe { (*self.raw).async_fd }
    }

    fn query_limits(&self) -> Result<DeviceLimits, VerbsError> {
        // SAFETY: plain numbers; all zeroes is valid.
        let mut attributes: ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: an open context and a live structure.
        let result = unsafe { (self.table.query_device)(self.raw, &raw mut attributes) };
        if result != 0 {
            return Err(VerbsError::call("ibv_query_device", &self.name, "", result.abs()));
        }
        let number = |value| u32::try_from(value).unwrap_or(0);
        Ok(DeviceLimits {
            max_mr_size: attributes.max_mr_size,
            max_mr: number(attributes.max_mr),
            max_qp: number(attributes.max_qp),
            max_qp_wr: number(attributes.max_qp_wr),
            max_sge: number(attributes.max_sge),
            max_cqe: number(attributes.max_cqe),
            ports: attributes.phys_port_cnt,
        })
    }

    /// Looks at a port.
    ///
    /// # Errors
    /// When the device has no such port, or is gone.
    pub fn port(&self, number: u8) -> Result<Port, VerbsError> {
        // SAFETY: plain numbers; all zeroes is valid.
        let mut attributes: ibv_port_attr = unsafe { std::mem::zeroed() };
        // SAFETY: an open context and a live structure.
        let result = unsafe { (self.table.query_port)(self.raw, number, &raw mut attributes) };
        if result != 0 {
            let detail = format!("port {number}");
            return Err(VerbsError::call("ibv_query_port", &self.name, detail, result.abs()));
        }
        let state = match attributes.state {
            IBV_PORT_DOWN => "down",
            IBV_PORT_INIT => "initializing",
            IBV_PORT_ARMED => "armed",
            IBV_PORT_ACTIVE => "active",
            _ => "in an unknown state",
        };
        Ok(Port {
            number,
            active: attributes.state == IBV_PORT_ACTIVE,
            state,
            ethernet: u32::from(attributes.link_layer) == IBV_LINK_LAYER_ETHERNET,
            mtu: attributes.active_mtu,
            max_message: attributes.max_msg_sz,
            lid: attributes.lid,
            gids: u32::try_from(attributes.gid_tbl_len).unwrap_or(0),
        })
    }

    /// A port's addresses: those that are set.
    #[must_use]
    pub fn gids(&self, port: &Port) -> Vec<GidEntry> {
        /// Devices claim tables of thousands of entries; real ones are at the front.
        const LOOKED_AT: u32 = 256;
        let mut found = Vec::new();
        for index in 0..port.gids.min(LOOKED_AT) {
            // SAFETY: plain numbers; all zeroes is valid.
            let mut entry: ibv_gid_entry = unsafe { std::mem::zeroed() };
            let size = size_of::<ibv_gid_entry>();
            // SAFETY: an open context, a live structure and its size.
            let result = unsafe {
                (self.table.query_gid_ex)(
                    self.raw,
                    port.number.into(),
                    index,
                    &raw mut entry,
                    0,
                    size,
                )
            };
            // SAFETY: every bit pattern is 16 bytes.
            let gid = Gid(unsafe { entry.gid.raw });
            if result == 0 && gid != Gid::NONE {
                let kind = GidKind::from_raw(entry.gid_type);
                found.push(GidEntry { index, gid, kind, interface: entry.ndev_ifindex });
            }
        }
        found
    }
}

impl DeviceLimits {
    const NONE: Self = Self {
        max_mr_size: 0,
        max_mr: 0,
        max_qp: 0,
        max_qp_wr: 0,
        max_sge: 0,
        max_cqe: 0,
        ports: 0,
    };
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once; whatever was made from it is gone.
        unsafe { (self.table.close_device)(self.raw) };
    }
}
