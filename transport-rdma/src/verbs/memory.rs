//! Registered memory.

use super::bindings::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, ibv_mr, ibv_pd};
use super::device::Context;
use super::error::{VerbsError, last_errno};
use kvbaton_core::region::MemoryRange;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Groups what may be used together on a device.
pub struct ProtectionDomain {
    pub(super) context: Arc<Context>,
    pub(super) raw: *mut ibv_pd,
}

// SAFETY: rdma-core's objects may be used from any thread, concurrently.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above.
unsafe impl Sync for ProtectionDomain {}

/// A part of a DMA buffer that another driver (a GPU's) exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dmabuf {
    /// The exported buffer.
    pub fd: RawFd,
    /// Where the range begins in it, in bytes.
    pub offset: u64,
}

impl ProtectionDomain {
    /// Makes one on a device.
    ///
    /// # Errors
    /// When the device has no more.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: an open context.
        let raw = unsafe { (context.table.alloc_pd)(context.raw) };
        if raw.is_null() {
            return Err(VerbsError::call("ibv_alloc_pd", &context.name, "", last_errno()));
        }
        Ok(Arc::new(Self { context: context.clone(), raw }))
    }

    /// Its device.
    #[must_use]
    pub const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Registers memory that peers may write to. With `dmabuf`, the range is a GPU's.
    ///
    /// # Safety
    /// The range must stay mapped until the region is dropped, and its owner must tolerate
    /// that peers change it until then.
    ///
    /// # Errors
    /// When it cannot be pinned: the memlock limit, the device's limits, unmapped memory.
    pub unsafe fn register(
        self: &Arc<Self>,
        range: MemoryRange,
        dmabuf: Option<Dmabuf>,
    ) -> Result<MemoryRegion, VerbsError> {
        let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
        let table = &self.context.table;
        let len = usize::try_from(range.len.0).unwrap_or(usize::MAX);
        let (call, raw) = match dmabuf {
            None => {
                let start = std::ptr::with_exposed_provenance_mut(range.start.0 as usize);
                // SAFETY: the caller vouches for the range.
                ("ibv_reg_mr", unsafe { (table.reg_mr)(self.raw, start, len, access as i32) })
            }
            Some(buffer) => {
                let Some(register) = table.reg_dmabuf_mr else {
                    let (name, detail) = (&self.context.name, "rdma-core before 34");
                    let errno = libc::EOPNOTSUPP;
                    return Err(VerbsError::call("ibv_reg_dmabuf_mr", name, detail, errno));
                };
                let (start, fd) = (range.start.0, buffer.fd);
                // SAFETY: the caller vouches for the range.
                let raw =
                    unsafe { register(self.raw, buffer.offset, len, start, fd, access as i32) };
                ("ibv_reg_dmabuf_mr", raw)
            }
        };
        if raw.is_null() {
            let detail = format!("{:#x}+{:#x}", range.start.0, range.len.0);
            return Err(VerbsError::call(call, &self.context.name, detail, last_errno()));
        }
        Ok(MemoryRegion { domain: self.clone(), raw })
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: made once, freed once; whatever was made from it is gone.
        unsafe { (self.context.table.dealloc_pd)(self.raw) };
    }
}

/// A registered range. Dropping it ends the registration: once that returned, no write
/// lands in it and nothing reads it.
pub struct MemoryRegion {
    domain: Arc<ProtectionDomain>,
    raw: *mut ibv_mr,
}

// SAFETY: rdma-core's objects may be used from any thread, concurrently.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// The key for local use.
    #[must_use]
    pub fn local_key(&self) -> u32 {
        // SAFETY: the region lives.
        unsafe { (*self.raw).lkey }
    }

    /// The key that peers write with.
    #[must_use]
    pub fn remote_key(&self) -> u32 {
        // SAFETY: the region lives.
        unsafe { (*self.raw).rkey }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: made once, ended once.
        let result = unsafe { (self.domain.context.table.dereg_mr)(self.raw) };
        if result != 0 {
            let device = &self.domain.context.name;
            tracing::error!(%device, errno = result, "ibv_dereg_mr failed; memory stays pinned");
        }
    }
}
