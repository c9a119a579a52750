//! Completion queues.

use super::bindings::{
    IBV_WC_FATAL_ERR, IBV_WC_GENERAL_ERR, IBV_WC_LOC_ACCESS_ERR, IBV_WC_LOC_LEN_ERR,
    IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_ABORT_ERR, IBV_WC_REM_ACCESS_ERR,
    IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR, IBV_WC_RESP_TIMEOUT_ERR, IBV_WC_RETRY_EXC_ERR,
    IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR, ibv_comp_channel, ibv_cq,
    ibv_wc,
};
use super::device::Context;
use super::error::{VerbsError, last_errno};
use std::os::fd::RawFd;
use std::sync::Arc;

/// Wakes a thread when a completion queue that was armed gets an entry.
pub struct Channel {
    context: Arc<Context>,
    raw: *mut ibv_comp_channel,
}

// SAFETY: rdma-core's objects may be used from any thread, concurrently.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    /// Makes one on a device.
    ///
    /// # Errors
    /// When there are no more descriptors.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: an open context.
        let raw = unsafe { (context.table.create_comp_channel)(context.raw) };
        if raw.is_null() {
            let errno = last_errno();
            return Err(VerbsError::call("ibv_create_comp_channel", &context.name, "", errno));
        }
        let channel = Self { context: context.clone(), raw };
        super::events::unblock(channel.fd())
            .map_err(|errno| VerbsError::call("fcntl", &context.name, "completions", errno))?;
        Ok(Arc::new(channel))
    }

    /// Readable while a notification waits.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        // SAFETY: the channel lives.
        unsafe { (*self.raw).fd }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: made once, freed once; its queues keep it alive.
        unsafe { (self.context.table.destroy_comp_channel)(self.raw) };
    }
}

/// How a work request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// It was carried out.
    pub const SUCCESS: Self = Self(IBV_WC_SUCCESS);
    /// It was not, because its queue pair broke before or was told to stop.
    pub const FLUSHED: Self = Self(IBV_WC_WR_FLUSH_ERR);
    /// The peer does not answer.
    pub const NO_ANSWER: Self = Self(IBV_WC_RETRY_EXC_ERR);
    /// The peer refused the key, the range or the permission.
    pub const REMOTE_ACCESS: Self = Self(IBV_WC_REM_ACCESS_ERR);

    /// Whether the request itself, or what it names here, is wrong: another try on any
    /// device fails alike `[F71]`. "Local queue pair operation error" is not among them:
    /// soft-RoCE reports so a packet that it could not send, as while its port is down.
    #[must_use]
    pub const fn is_local(self) -> bool {
        matches!(self.0, IBV_WC_LOC_LEN_ERR | IBV_WC_LOC_PROT_ERR | IBV_WC_LOC_ACCESS_ERR)
    }

    /// The status in words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self.0 {
            IBV_WC_SUCCESS => "success",
            IBV_WC_LOC_LEN_ERR => "local length error",
            IBV_WC_LOC_QP_OP_ERR => "local queue pair operation error",
            IBV_WC_LOC_PROT_ERR => "local protection error",
            IBV_WC_LOC_ACCESS_ERR => "local access error",
            IBV_WC_WR_FLUSH_ERR => "flushed",
            IBV_WC_REM_INV_REQ_ERR => "remote invalid request error",
            IBV_WC_REM_ACCESS_ERR => "remote access error",
            IBV_WC_REM_OP_ERR => "remote operation error",
            IBV_WC_REM_ABORT_ERR => "aborted by the peer",
            IBV_WC_RETRY_EXC_ERR => "transport retries exceeded",
            IBV_WC_RNR_RETRY_EXC_ERR => "receiver-not-ready retries exceeded",
            IBV_WC_RESP_TIMEOUT_ERR => "response timeout",
            IBV_WC_FATAL_ERR => "fatal error",
            IBV_WC_GENERAL_ERR => "general error",
            _ => "an uncommon error",
        }
    }
}

/// One entry of a completion queue: only what is valid for errors as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The number that the request was posted with.
    pub id: u64,
    /// How it ended.
    pub status: Status,
    /// The adapter's own code for an error.
    pub vendor_error: u32,
    /// The queue pair it was posted to.
    pub queue_pair: u32,
}

/// A completion queue.
pub struct CompletionQueue {
    pub(super) context: Arc<Context>,
    channel: Arc<Channel>,
    pub(super) raw: *mut ibv_cq,
    capacity: u32,
}

// SAFETY: rdma-core's objects may be used from any thread, concurrently.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// Makes one that holds at least `entries`, and wakes `channel` when armed.
    ///
    /// # Errors
    /// When the device cannot have one of that size.
    pub fn new(channel: &Arc<Channel>, entries: u32) -> Result<Arc<Self>, VerbsError> {
        let context = channel.context.clone();
        let wanted = i32::try_from(entries).unwrap_or(i32::MAX);
        // SAFETY: an open context and a live channel.
        let raw = unsafe {
            let nothing = std::ptr::null_mut();
            (context.table.create_cq)(context.raw, wanted, nothing, channel.raw, 0)
        };
        if raw.is_null() {
            let detail = format!("{entries} entries of at most {}", context.limits().max_cqe);
            return Err(VerbsError::call("ibv_create_cq", &context.name, detail, last_errno()));
        }
        // SAFETY: just made.
        let capacity = u32::try_from(unsafe { (*raw).cqe }).unwrap_or(entries);
        Ok(Arc::new(Self { context, channel: channel.clone(), raw, capacity }))
    }

    /// Entries that it holds.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Takes up to 32 entries and gives each to `take`; how many there were.
    ///
    /// # Errors
    /// When the queue is broken.
    pub fn poll(&self, mut take: impl FnMut(Completion)) -> Result<usize, VerbsError> {
        const BATCH: usize = 32;
        // SAFETY: plain numbers; all zeroes is valid.
        let mut entries: [ibv_wc; BATCH] = unsafe { std::mem::zeroed() };
        // SAFETY: a live queue and room for as many entries as are asked for.
        let got = unsafe {
            let poll = (*self.context.raw).ops.poll_cq.expect("every driver has it");
            poll(self.raw, BATCH as i32, entries.as_mut_ptr())
        };
        let Ok(got) = usize::try_from(got) else {
            return Err(VerbsError::call("ibv_poll_cq", &self.context.name, "", libc::EIO));
        };
        for entry in &entries[..got.min(BATCH)] {
            take(Completion {
                id: entry.wr_id,
                status: Status(entry.status),
                vendor_error: entry.vendor_err,
                queue_pair: entry.qp_num,
            });
        }
        Ok(got)
    }

    /// Wakes the channel at the next entry. Poll once more after it: entries that came
    /// before it wake nobody.
    ///
    /// # Errors
    /// When the queue is broken.
    pub fn arm(&self) -> Result<(), VerbsError> {
        // SAFETY: a live queue.
        let result = unsafe {
            let notify = (*self.context.raw).ops.req_notify_cq.expect("every driver has it");
            notify(self.raw, 0)
        };
        if result == 0 {
            return Ok(());
        }
        Err(VerbsError::call("ibv_req_notify_cq", &self.context.name, "", result.abs()))
    }

    /// Takes the notifications that wait in the channel, which must be this queue's own.
    pub fn take_notifications(&self) {
        let (mut queue, mut user) = (std::ptr::null_mut(), std::ptr::null_mut());
        let table = &self.context.table;
        let mut taken = 0;
        // SAFETY: a live channel that does not block, and room for both pointers.
        while unsafe { (table.get_cq_event)(self.channel.raw, &raw mut queue, &raw mut user) == 0 }
        {
            taken += 1;
        }
        if taken > 0 {
            // SAFETY: a live queue; each was got once above.
            unsafe { (table.ack_cq_events)(self.raw, taken) };
        }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // Destroying a queue waits until every notification got from it was acknowledged,
        // which is done where they are taken.
        // SAFETY: made once, destroyed once; its queue pairs keep it alive.
        let result = unsafe { (self.context.table.destroy_cq)(self.raw) };
        if result != 0 {
            let device = &self.context.name;
            tracing::error!(%device, errno = result, "ibv_destroy_cq failed");
        }
    }
}
