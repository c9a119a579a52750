//! What touches memory and descriptors: the borders of the fake.

use std::ffi::c_void;

/// A descriptor that counts: each ring lets one read succeed.
pub(crate) fn bell() -> i32 {
    // SAFETY: a plain call.
    unsafe { libc::eventfd(0, libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC) }
}

/// Rings it once.
pub(crate) fn ring(bell: i32) {
    let one = 1_u64.to_ne_bytes();
    // SAFETY: eight live bytes.
    unsafe { libc::write(bell, one.as_ptr().cast(), one.len()) };
}

/// Takes one ring; waits for it unless the descriptor does not block.
pub(crate) fn wait(bell: i32) -> bool {
    let mut count = [0_u8; 8];
    // SAFETY: eight live bytes.
    unsafe { libc::read(bell, count.as_mut_ptr().cast(), count.len()) == 8 }
}

/// Closes it.
pub(crate) fn close(bell: i32) {
    // SAFETY: made by `bell`, closed once.
    unsafe { libc::close(bell) };
}

/// Sets the calling thread's error number.
pub(crate) fn set_errno(errno: i32) {
    // SAFETY: the address is this thread's.
    unsafe { *libc::__errno_location() = errno };
}

/// Copies out of registered memory, as an adapter would.
pub(crate) fn read(address: u64, len: usize, into: &mut Vec<u8>) {
    let from: *const u8 = std::ptr::with_exposed_provenance(address as usize);
    into.reserve(len);
    // SAFETY: who registered the range promised that it stays mapped; there is room.
    unsafe {
        std::ptr::copy_nonoverlapping(from, into.as_mut_ptr().add(into.len()), len);
        into.set_len(into.len() + len);
    }
}

/// Copies into registered memory, as an adapter would.
pub(crate) fn write(address: u64, bytes: &[u8]) {
    let to: *mut u8 = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: who registered the range promised that it stays mapped and may change.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
}

/// A zeroed structure of the interface, on the heap.
///
/// # Safety
/// All zeroes must be valid for it, as for every structure of the interface.
pub(crate) unsafe fn zeroed<T>() -> Box<T> {
    // SAFETY: the caller vouches for it.
    Box::new(unsafe { std::mem::zeroed() })
}

/// Frees what `Box::into_raw` gave out.
///
/// # Safety
/// `raw` must come from there and be freed once.
pub(crate) unsafe fn free<T>(raw: *mut T) {
    // SAFETY: the caller vouches for it.
    drop(unsafe { Box::from_raw(raw) });
}

/// A pointer's number.
pub(crate) fn number<T>(raw: *mut T) -> usize {
    raw.expose_provenance()
}

/// The pointer again.
pub(crate) fn pointer<T>(number: usize) -> *mut T {
    std::ptr::with_exposed_provenance_mut::<c_void>(number).cast()
}
