//! Memory of a GPU, exported as a DMA buffer. Not yet run on hardware.
//!
//! libcuda is opened at run time. Whether a range is a GPU's, and a descriptor for it, is
//! asked of it: `cuPointerGetAttribute`, `cuMemGetHandleForAddressRange`. The descriptor is
//! registered with `ibv_reg_dmabuf_mr`; the registration ends before the memory is unmapped
//! for a sleep `[S05]`.

use crate::verbs::{find, open_library};
use kvbaton_core::region::MemoryRange;
use std::ffi::{CStr, c_int, c_ulonglong, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// A range as a DMA buffer.
#[derive(Debug)]
pub struct Exported {
    /// The buffer; closed when dropped, what was registered with it stays.
    pub buffer: OwnedFd,
    /// Where the range begins in it.
    pub offset: u64,
}

/// Tells a GPU's memory from the processor's.
pub trait GpuMemory: Send + Sync {
    /// A DMA buffer for a range; `None` when it is the processor's.
    ///
    /// # Errors
    /// When it is a GPU's and cannot be exported: says what to do.
    fn export(&self, range: MemoryRange) -> Result<Option<Exported>, String>;
}

/// Where there is no GPU.
pub struct NoGpu;

impl GpuMemory for NoGpu {
    fn export(&self, _range: MemoryRange) -> Result<Option<Exported>, String> {
        Ok(None)
    }
}

type PointerGetAttribute = unsafe extern "C" fn(*mut c_void, c_int, c_ulonglong) -> c_int;
type GetHandle = unsafe extern "C" fn(*mut c_void, c_ulonglong, usize, c_int, c_ulonglong) -> c_int;

/// NVIDIA's driver.
pub struct Cuda {
    pointer_get_attribute: PointerGetAttribute,
    get_handle: Option<GetHandle>,
}

impl Cuda {
    /// The system's driver; `None` where there is none.
    #[must_use]
    pub fn system() -> Option<Self> {
        let handle = open_library(c"libcuda.so.1").ok()?;
        // SAFETY: this name is NVIDIA's driver, whose interface is stable; it is never closed.
        unsafe { Self::from_symbols(&|name| find(handle, name)) }
    }

    /// Functions from wherever `find` has them; `None` when it lacks one.
    ///
    /// # Safety
    /// What `find` yields must behave as the driver's functions of these names, for ever.
    #[must_use]
    pub unsafe fn from_symbols(find: &dyn Fn(&CStr) -> Option<NonNull<c_void>>) -> Option<Self> {
        let attribute = find(c"cuPointerGetAttribute")?;
        let handle = find(c"cuMemGetHandleForAddressRange");
        // SAFETY: the caller vouches for types and life of both.
        Some(unsafe {
            Self {
                pointer_get_attribute: std::mem::transmute::<NonNull<c_void>, PointerGetAttribute>(
                    attribute,
                ),
                get_handle: handle.map(|it| std::mem::transmute::<NonNull<c_void>, GetHandle>(it)),
            }
        })
    }
}

const MEMORY_TYPE: c_int = 2;
const DEVICE: u32 = 2;
const DMABUF: c_int = 1;
/// The driver exports whole pages of the host.
const PAGE: u64 = 4096;

impl GpuMemory for Cuda {
    fn export(&self, range: MemoryRange) -> Result<Option<Exported>, String> {
        let mut kind = 0_u32;
        // SAFETY: the attribute is a number of 32 bits; any address may be asked about.
        let result = unsafe {
            (self.pointer_get_attribute)((&raw mut kind).cast(), MEMORY_TYPE, range.start.0)
        };
        // An address that the driver does not know is the processor's.
        if result != 0 || kind != DEVICE {
            return Ok(None);
        }
        let Some(get_handle) = self.get_handle else {
            return Err("this is a GPU's memory and its driver cannot export it; CUDA 11.7 or \
                        later can"
                .into());
        };
        let start = range.start.0 / PAGE * PAGE;
        let end = (range.start.0 + range.len.0).next_multiple_of(PAGE);
        let len = usize::try_from(end - start).unwrap_or(usize::MAX);
        let mut descriptor: c_int = -1;
        // SAFETY: room for a descriptor; the driver checks the range.
        let result = unsafe { get_handle((&raw mut descriptor).cast(), start, len, DMABUF, 0) };
        if result != 0 || descriptor < 0 {
            return Err(format!(
                "this is a GPU's memory and its driver did not export it as a DMA buffer (CUDA \
                 error {result}); it needs the open kernel modules, and memory mapped by \
                 cuMemMap to allow RDMA (gpuDirectRDMACapable)"
            ));
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        let buffer = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Some(Exported { buffer, offset: range.start.0 - start }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvbaton_core::ids::{Address, Bytes};

    const GPU: u64 = 0x7000_0000_0000;

    unsafe extern "C" fn attribute(to: *mut c_void, kind: c_int, address: c_ulonglong) -> c_int {
        assert_eq!(kind, MEMORY_TYPE);
        if address < GPU {
            return 1;
        }
        // SAFETY: the caller has room for a number of 32 bits.
        unsafe { to.cast::<u32>().write(DEVICE) };
        0
    }

    unsafe extern "C" fn handle(
        to: *mut c_void,
        start: c_ulonglong,
        len: usize,
        kind: c_int,
        _flags: c_ulonglong,
    ) -> c_int {
        assert_eq!((start % PAGE, len as u64 % PAGE, kind), (0, 0, DMABUF));
        if len > 1 << 20 {
            return 801;
        }
        // SAFETY: the caller has room for a descriptor; any open one will do.
        unsafe { to.cast::<c_int>().write(libc::dup(0)) };
        0
    }

    fn fake(with_handle: bool) -> Cuda {
        let find = move |name: &CStr| {
            NonNull::new(match name.to_bytes() {
                b"cuPointerGetAttribute" => attribute as *mut c_void,
                b"cuMemGetHandleForAddressRange" if with_handle => handle as *mut c_void,
                _ => return None,
            })
        };
        // SAFETY: the functions above have the driver's types.
        unsafe { Cuda::from_symbols(&find) }.expect("has what it needs")
    }

    fn range(start: u64, len: u64) -> MemoryRange {
        MemoryRange { start: Address(start), len: Bytes(len) }
    }

    #[test]
    fn a_gpus_memory_is_exported_in_whole_pages_and_the_processors_is_not() {
        let cuda = fake(true);
        assert!(cuda.export(range(0x1000, 64)).expect("is fine").is_none());
        let exported = cuda.export(range(GPU + 100, 5000)).expect("is fine").expect("a GPU's");
        assert_eq!(exported.offset, 100);
    }

    #[test]
    fn memory_that_cannot_be_exported_says_what_to_do() {
        let error = fake(true).export(range(GPU, 2 << 20)).expect_err("refused");
        assert!(error.contains("801") && error.contains("open kernel modules"), "{error}");
        let error = fake(false).export(range(GPU, 64)).expect_err("too old");
        assert!(error.contains("11.7"), "{error}");
    }
}
