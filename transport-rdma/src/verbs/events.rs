//! Asynchronous events of a device.

use super::bindings::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ACTIVE,
    IBV_EVENT_PORT_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR,
    ibv_async_event,
};
use super::device::Context;
use super::error::last_errno;
use std::os::fd::RawFd;

/// What a device said about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsyncEvent {
    /// A queue pair broke; its number.
    QueuePair(u32),
    /// A peer tried what it may not; the queue pair's number.
    Refused(u32),
    /// A completion queue overflowed or broke.
    CompletionQueue,
    /// A port can carry data again.
    PortUp(u8),
    /// A port lost its link.
    PortDown(u8),
    /// A port's addresses changed.
    GidChange(u8),
    /// The device is gone.
    DeviceGone,
    /// Something that changes nothing here.
    Other,
}

impl Context {
    /// The next event, without waiting; `None` when there is none.
    #[must_use]
    pub fn next_event(&self) -> Option<AsyncEvent> {
        // SAFETY: plain numbers and null pointers; all zeroes is valid.
        let mut event: ibv_async_event = unsafe { std::mem::zeroed() };
        // SAFETY: an open context and a live structure; its descriptor does not block.
        if unsafe { (self.table.get_async_event)(self.raw, &raw mut event) } != 0 {
            return None;
        }
        let port = || {
            // SAFETY: port events carry a port number.
            u8::try_from(unsafe { event.element.port_num }).unwrap_or(0)
        };
        let queue_pair = || {
            // SAFETY: events of queue pairs carry one, which lives until it is acknowledged.
            unsafe { (*event.element.qp).qp_num }
        };
        let told = match event.event_type {
            IBV_EVENT_QP_FATAL => AsyncEvent::QueuePair(queue_pair()),
            IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR => AsyncEvent::Refused(queue_pair()),
            IBV_EVENT_CQ_ERR => AsyncEvent::CompletionQueue,
            IBV_EVENT_PORT_ACTIVE => AsyncEvent::PortUp(port()),
            IBV_EVENT_PORT_ERR => AsyncEvent::PortDown(port()),
            IBV_EVENT_GID_CHANGE => AsyncEvent::GidChange(port()),
            IBV_EVENT_DEVICE_FATAL => AsyncEvent::DeviceGone,
            _ => AsyncEvent::Other,
        };
        // SAFETY: got above, acknowledged once.
        unsafe { (self.table.ack_async_event)(&raw mut event) };
        Some(told)
    }
}

/// Makes reads of a descriptor return at once.
pub(super) fn unblock(fd: RawFd) -> Result<(), i32> {
    // SAFETY: plain calls on a descriptor of an open object.
    let changed = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK)
    };
    if changed < 0 { Err(last_errno()) } else { Ok(()) }
}
