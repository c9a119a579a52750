//! Reliable-connected queue pairs.

use super::bindings::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS, IBV_QP_AV,
    IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER,
    IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY,
    IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_QPS_ERR, IBV_QPS_INIT,
    IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WR_RDMA_WRITE,
    ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_send_wr, ibv_sge,
};
use super::completion::CompletionQueue;
use super::device::Port;
use super::error::{VerbsError, last_errno};
use super::gid::{Gid, GidEntry};
use super::memory::ProtectionDomain;
use std::fmt;
use std::sync::Arc;

/// What a peer must know to connect to a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// The queue pair's number, 24 bits.
    pub number: u32,
    /// Its first packet's sequence number, 24 bits.
    pub first_packet: u32,
    /// Its port's address.
    pub gid: Gid,
    /// Its port's local id; 0 on Ethernet.
    pub lid: u16,
    /// Largest packet it can take, encoded as in [`Port::mtu`].
    pub mtu: u32,
}

/// Sizes of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSizes {
    /// Requests posted and not yet completed.
    pub depth: u32,
    /// Pieces of a request.
    pub pieces: u32,
    /// Bytes that a request may carry itself.
    pub inline: u32,
}

/// How long a silent peer is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Until a packet is sent again: 4.096 µs · 2^this, 1–31.
    pub ack_timeout: u8,
    /// Times that it is sent again, 0–6 (7 never gives up on some drivers).
    pub retries: u8,
}

/// A queue pair. Dropping it destroys it: after that neither side's writes land, and no
/// memory is read for it.
pub struct QueuePair {
    domain: Arc<ProtectionDomain>,
    _completions: Arc<CompletionQueue>,
    raw: *mut ibv_qp,
    sizes: QueueSizes,
}

// SAFETY: rdma-core's objects may be used from any thread, concurrently.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue pair {:#x} of {}", self.number(), self.domain.context.name)
    }
}

impl QueuePair {
    /// Makes one in the state RESET. It takes no receive requests: only writes are used.
    ///
    /// # Errors
    /// When the device has no more, or not of that size.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        completions: &Arc<CompletionQueue>,
        sizes: QueueSizes,
    ) -> Result<Self, VerbsError> {
        // SAFETY: plain numbers and null pointers; all zeroes is valid.
        let mut attributes: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        attributes.send_cq = completions.raw;
        attributes.recv_cq = completions.raw;
        attributes.qp_type = IBV_QPT_RC;
        attributes.cap = ibv_qp_cap {
            max_send_wr: sizes.depth,
            max_recv_wr: 1,
            max_send_sge: sizes.pieces,
            max_recv_sge: 1,
            max_inline_data: sizes.inline,
        };
        let context = &domain.context;
        // SAFETY: a live domain, a live queue of the same device, a live structure.
        let raw = unsafe { (context.table.create_qp)(domain.raw, &raw mut attributes) };
        if raw.is_null() {
            let detail = format!(
                "{} requests of {} pieces, {} bytes inline; the device takes {} of {}",
                sizes.depth,
                sizes.pieces,
                sizes.inline,
                context.limits().max_qp_wr,
                context.limits().max_sge
            );
            return Err(VerbsError::call("ibv_create_qp", &context.name, detail, last_errno()));
        }
        let sizes = QueueSizes { inline: attributes.cap.max_inline_data, ..sizes };
        Ok(Self { domain: domain.clone(), _completions: completions.clone(), raw, sizes })
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        // SAFETY: the queue pair lives.
        unsafe { (*self.raw).qp_num }
    }

    /// Its sizes, as granted.
    #[must_use]
    pub const fn sizes(&self) -> QueueSizes {
        self.sizes
    }

    /// RESET → INIT: bound to a port; open to the peer's writes, or not.
    ///
    /// # Errors
    /// When the move is refused.
    pub fn initialize(&self, port: &Port, takes_writes: bool) -> Result<(), VerbsError> {
        let mut to = attributes();
        to.qp_state = IBV_QPS_INIT;
        to.port_num = port.number;
        to.qp_access_flags = IBV_ACCESS_LOCAL_WRITE;
        if takes_writes {
            to.qp_access_flags |= IBV_ACCESS_REMOTE_WRITE;
        }
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        self.modify(&mut to, mask, "RESET to INIT", &format_args!("port {}", port.number))
    }

    /// INIT → RTR → RTS: connected to a peer's.
    ///
    /// # Errors
    /// When a move is refused, as for a GID that no route leads to.
    pub fn connect(
        &self,
        port: &Port,
        own: &GidEntry,
        first_packet: u32,
        peer: &Endpoint,
        timing: Timing,
    ) -> Result<(), VerbsError> {
        let mut to = attributes();
        to.qp_state = IBV_QPS_RTR;
        to.path_mtu = port.mtu.min(peer.mtu);
        to.dest_qp_num = peer.number;
        to.rq_psn = peer.first_packet;
        to.max_dest_rd_atomic = 1;
        to.min_rnr_timer = 12;
        to.ah_attr.port_num = port.number;
        to.ah_attr.dlid = peer.lid;
        to.ah_attr.is_global = 1;
        to.ah_attr.grh.dgid.raw = peer.gid.0;
        to.ah_attr.grh.sgid_index = u8::try_from(own.index).unwrap_or(u8::MAX);
        to.ah_attr.grh.hop_limit = 64;
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        let about = format_args!(
            "own GID {:?} at index {}, peer's GID {:?}, queue pair {:#x}, MTU code {}",
            own.gid, own.index, peer.gid, peer.number, to.path_mtu
        )
        .to_string();
        self.modify(&mut to, mask, "INIT to RTR", &about)?;

        let mut to = attributes();
        to.qp_state = IBV_QPS_RTS;
        to.sq_psn = first_packet;
        to.timeout = timing.ack_timeout;
        to.retry_cnt = timing.retries;
        to.rnr_retry = 6;
        to.max_rd_atomic = 1;
        let mask = IBV_QP_STATE
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC;
        let about = format_args!("timeout code {}, {} retries", timing.ack_timeout, timing.retries)
            .to_string();
        self.modify(&mut to, mask, "RTR to RTS", &about)
    }

    /// Any state → ERR: nothing is sent or taken any more; what was posted is flushed.
    ///
    /// # Errors
    /// When the move is refused; destroying it has the same effect then.
    pub fn fail(&self) -> Result<(), VerbsError> {
        let mut to = attributes();
        to.qp_state = IBV_QPS_ERR;
        self.modify(&mut to, IBV_QP_STATE, "to ERR", &"")
    }

    fn modify(
        &self,
        to: &mut ibv_qp_attr,
        mask: u32,
        states: &str,
        about: &dyn fmt::Display,
    ) -> Result<(), VerbsError> {
        let context = &self.domain.context;
        // SAFETY: a live queue pair and a live structure.
        let result = unsafe { (context.table.modify_qp)(self.raw, to, mask as i32) };
        if result == 0 {
            return Ok(());
        }
        let detail = format!("queue pair {:#x}, {states}, {about}", self.number());
        // Some versions return -1 and set the error number.
        let errno = if result > 0 { result } else { last_errno() };
        Err(VerbsError::call("ibv_modify_qp", &context.name, detail, errno))
    }
}

fn attributes() -> ibv_qp_attr {
    // SAFETY: plain numbers; all zeroes is valid.
    unsafe { std::mem::zeroed() }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let context = &self.domain.context;
        // SAFETY: made once, destroyed once.
        let result = unsafe { (context.table.destroy_qp)(self.raw) };
        if result != 0 {
            tracing::error!(device = %context.name, errno = result, "ibv_destroy_qp failed");
        }
    }
}

/// One piece of local memory that a write reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WritePiece {
    /// First address.
    pub address: u64,
    /// Length, at least 1.
    pub len: u32,
    /// Key of the region that holds it.
    pub key: u32,
}

/// What posting a batch came to.
#[derive(Debug)]
pub struct Posted {
    /// Requests that were taken, from the front.
    pub accepted: usize,
    /// Why the others were not.
    pub refused: Option<VerbsError>,
}

/// A batch of writes in the making: its room is allocated once.
pub struct SendQueue {
    requests: Vec<ibv_send_wr>,
    pieces: Vec<ibv_sge>,
    max_pieces: usize,
}

// SAFETY: its pointers lead into its own vectors and are set anew at each post.
unsafe impl Send for SendQueue {}

impl SendQueue {
    /// Room for so many requests of so many pieces.
    #[must_use]
    pub fn new(requests: usize, pieces: usize) -> Self {
        Self {
            requests: Vec::with_capacity(requests),
            pieces: Vec::with_capacity(requests * pieces),
            max_pieces: pieces,
        }
    }

    /// Requests in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether another request fits.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.requests.len() < self.requests.capacity()
    }

    /// Starts over.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.pieces.clear();
    }

    /// Adds a write of `pieces`, one after the other, to one contiguous remote range.
    ///
    /// # Panics
    /// When there is no room, or there are too many pieces.
    pub fn push(
        &mut self,
        id: u64,
        pieces: &[WritePiece],
        remote: u64,
        remote_key: u32,
        inline: bool,
    ) {
        assert!(self.has_room() && pieces.len() <= self.max_pieces, "a batch has bounds");
        // SAFETY: plain numbers and null pointers; all zeroes is valid.
        let mut request: ibv_send_wr = unsafe { std::mem::zeroed() };
        request.wr_id = id;
        request.num_sge = pieces.len() as i32;
        request.opcode = IBV_WR_RDMA_WRITE;
        request.send_flags = if inline { IBV_SEND_INLINE } else { 0 };
        request.wr.rdma.remote_addr = remote;
        request.wr.rdma.rkey = remote_key;
        self.requests.push(request);
        self.pieces.extend(pieces.iter().map(|piece| ibv_sge {
            addr: piece.address,
            length: piece.len,
            lkey: piece.key,
        }));
    }

    /// Makes the last request announce its completion.
    pub fn signal_last(&mut self) {
        if let Some(request) = self.requests.last_mut() {
            request.send_flags |= IBV_SEND_SIGNALED;
        }
    }

    /// Posts the batch and empties it. What was accepted is a prefix of it.
    ///
    /// # Safety
    /// The pieces must stay registered under their keys until each request has completed.
    pub unsafe fn post(&mut self, to: &QueuePair) -> Posted {
        let count = self.requests.len();
        if count == 0 {
            return Posted { accepted: 0, refused: None };
        }
        let first = self.requests.as_mut_ptr();
        let mut piece = self.pieces.as_mut_ptr();
        for index in 0..count {
            // SAFETY: inside the vectors: each request owns the next `num_sge` pieces.
            unsafe {
                let request = first.add(index);
                (*request).sg_list = piece;
                piece = piece.add((*request).num_sge as usize);
                let next =
                    if index + 1 < count { first.add(index + 1) } else { std::ptr::null_mut() };
                (*request).next = next;
            }
        }
        let context = &to.domain.context;
        let mut bad = std::ptr::null_mut();
        // SAFETY: a live queue pair and a chain of live requests; the caller vouches for the
        // memory.
        let result = unsafe {
            let post = (*context.raw).ops.post_send.expect("every driver has it");
            post(to.raw, first, &raw mut bad)
        };
        let posted = if result == 0 {
            Posted { accepted: count, refused: None }
        } else {
            let errno = if result > 0 { result } else { last_errno() };
            // The first that was not taken; drivers that do not say took none.
            let accepted = if bad.is_null() {
                0
            } else {
                let bytes = (bad as usize).saturating_sub(first as usize);
                (bytes / size_of::<ibv_send_wr>()).min(count)
            };
            let detail = format!("queue pair {:#x}, request {accepted} of {count}", to.number());
            let refused = VerbsError::call("ibv_post_send", &context.name, detail, errno);
            Posted { accepted, refused: Some(refused) }
        };
        self.clear();
        posted
    }
}
