//! Queue pairs: making, moving, posting, destroying. Callers promise what they promise
//! rdma-core.

use crate::bindings::*;
use crate::objects::{free, number, zeroed};
use crate::verbs::{fail, id};
use crate::world::{Event, QueuePairState, Request, with};
use std::collections::VecDeque;
use std::ffi::c_int;

/// As in rdma-core.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_qp(
    domain: *mut ibv_pd,
    attributes: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: live objects.
    let (context, handle, asked) =
        unsafe { ((*domain).context, (*domain).handle, &mut *attributes) };
    // SAFETY: a live queue.
    let completions = unsafe { (*asked.send_cq).handle };
    // SAFETY: numbers and pointers: all zeroes is valid.
    let mut pair = unsafe { zeroed::<ibv_qp>() };
    (pair.context, pair.pd, pair.qp_type) = (context, domain, asked.qp_type);
    (pair.send_cq, pair.recv_cq) = (asked.send_cq, asked.recv_cq);
    let raw = Box::into_raw(pair);
    let made = with(|world| {
        if let Some(errno) = world.failure(id(context), "ibv_create_qp") {
            return Err(errno);
        }
        let spec = &world.device_of(id(context)).spec;
        let fits = asked.cap.max_send_wr as c_int <= spec.max_qp_wr
            && asked.cap.max_send_sge as c_int <= spec.max_sge
            && asked.cap.max_inline_data <= spec.max_inline;
        if !fits {
            return Err(libc::EINVAL);
        }
        let number_of = world.fresh();
        world.queue_pairs.insert(
            number_of,
            QueuePairState {
                raw: number(raw),
                context: id(context),
                domain: handle,
                completions,
                state: IBV_QPS_RESET,
                depth: asked.cap.max_send_wr.into(),
                pieces: asked.cap.max_send_sge as usize,
                inline: asked.cap.max_inline_data as usize,
                posted: 0,
                retired: 0,
                peer: 0,
                peer_gid: [0; 16],
                sends_from: 0,
                takes_from: 0,
                waiting: VecDeque::new(),
            },
        );
        Ok(number_of)
    });
    match made {
        Ok(number) => {
            // SAFETY: just made.
            unsafe { (*raw).qp_num = number };
            raw
        }
        Err(errno) => {
            // SAFETY: just made, given to nobody.
            unsafe { free(raw) };
            fail(errno)
        }
    }
}

/// As in rdma-core.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_qp(
    pair: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    _mask: c_int,
) -> c_int {
    // SAFETY: live objects.
    let (context, number, to) = unsafe { ((*pair).context, (*pair).qp_num, &*attributes) };
    with(|world| {
        if let Some(errno) = world.failure(id(context), "ibv_modify_qp") {
            return errno;
        }
        let state = world.queue_pairs.get_mut(&number).expect("a live queue pair");
        match (state.state, to.qp_state) {
            (_, IBV_QPS_ERR) => {
                world.fail_queue_pair(number);
                return 0;
            }
            (_, IBV_QPS_RESET) => state.waiting.clear(),
            (IBV_QPS_RESET, IBV_QPS_INIT) => {}
            (IBV_QPS_INIT, IBV_QPS_RTR) => {
                state.peer = to.dest_qp_num;
                state.takes_from = to.rq_psn;
                // SAFETY: every bit pattern is 16 bytes.
                state.peer_gid = unsafe { to.ah_attr.grh.dgid.raw };
                if to.ah_attr.grh.sgid_index != 1 {
                    return libc::EINVAL;
                }
            }
            (IBV_QPS_RTR, IBV_QPS_RTS) => state.sends_from = to.sq_psn,
            _ => return libc::EINVAL,
        }
        state.state = to.qp_state;
        0
    })
}

/// As in rdma-core.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_qp(pair: *mut ibv_qp) -> c_int {
    // SAFETY: made by `ibv_create_qp`, destroyed once.
    unsafe {
        let raw = number(pair);
        with(|world| {
            if let Some(state) = world.queue_pairs.remove(&(*pair).qp_num)
                && let Some(context) = world.contexts.get_mut(&state.context)
            {
                // Nobody may hear of it any more; the bell's ring stays and finds nothing.
                context
                    .events
                    .retain(|(_, event)| !matches!(event, Event::QueuePair(it) if *it == raw));
            }
        });
        free(pair);
    }
    0
}

/// One request of a chain, taken apart.
fn request(raw: &ibv_send_wr, serial: u64) -> Request {
    let mut pieces = Vec::new();
    let mut inline = (raw.send_flags & IBV_SEND_INLINE != 0).then(Vec::new);
    for index in 0..raw.num_sge as usize {
        // SAFETY: the list has `num_sge` entries.
        let piece = unsafe { *raw.sg_list.add(index) };
        if let Some(bytes) = &mut inline {
            crate::objects::read(piece.addr, piece.length as usize, bytes);
        }
        pieces.push((piece.addr, piece.length, piece.lkey));
    }
    // SAFETY: a write, whose part of the union this is.
    let (remote, remote_key) = unsafe { (raw.wr.rdma.remote_addr, raw.wr.rdma.rkey) };
    let signaled = raw.send_flags & IBV_SEND_SIGNALED != 0;
    Request { id: raw.wr_id, serial, signaled, pieces, inline, remote, remote_key }
}

/// Takes a chain of requests, up to the first that there is no room for.
pub(crate) unsafe extern "C" fn post_send(
    pair: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: a live queue pair.
    let (context, number) = unsafe { ((*pair).context, (*pair).qp_num) };
    with(|world| {
        let mut next = first;
        // SAFETY: null, or a live request of the chain.
        while let Some(raw) = unsafe { next.as_ref() } {
            let failure = world.failure(id(context), "ibv_post_send");
            let state = world.queue_pairs.get_mut(&number).expect("a live queue pair");
            let taken = request(raw, state.posted);
            let errno = if failure.is_some() {
                failure
            } else if state.posted - state.retired >= state.depth {
                Some(libc::ENOMEM)
            } else if taken.pieces.len() > state.pieces
                || taken.inline.as_ref().is_some_and(|it| it.len() > state.inline)
                || !matches!(state.state, IBV_QPS_RTS | IBV_QPS_ERR)
                || raw.opcode != IBV_WR_RDMA_WRITE
            {
                Some(libc::EINVAL)
            } else {
                None
            };
            if let Some(errno) = errno {
                // SAFETY: a live pointer.
                unsafe { *bad = next };
                world.run(number);
                return errno;
            }
            state.posted += 1;
            state.waiting.push_back(taken);
            if state.state == IBV_QPS_ERR {
                world.fail_queue_pair(number);
            }
            next = raw.next;
        }
        world.run(number);
        0
    })
}

/// Rings the channel at the next entry.
pub(crate) unsafe extern "C" fn req_notify_cq(queue: *mut ibv_cq, _solicited: c_int) -> c_int {
    // SAFETY: a live queue.
    let handle = unsafe { (*queue).handle };
    with(|world| {
        let queue = world.completions.get_mut(&handle).expect("a live queue");
        queue.armed = true;
    });
    0
}

/// Takes entries; requests before them have room again.
pub(crate) unsafe extern "C" fn poll_cq(
    queue: *mut ibv_cq,
    most: c_int,
    into: *mut ibv_wc,
) -> c_int {
    // SAFETY: a live queue.
    let handle = unsafe { (*queue).handle };
    with(|world| {
        let mut got = 0;
        while got < most {
            let Some(entry) =
                world.completions.get_mut(&handle).and_then(|it| it.entries.pop_front())
            else {
                break;
            };
            if let Some(pair) = world.queue_pairs.get_mut(&entry.queue_pair) {
                pair.retired = pair.retired.max(entry.serial + 1);
            }
            // SAFETY: room for `most` entries.
            let to = unsafe { &mut *into.add(got as usize) };
            (to.wr_id, to.status, to.qp_num) = (entry.id, entry.status, entry.queue_pair);
            to.vendor_err = if entry.status == IBV_WC_SUCCESS { 0 } else { 0x66 };
            // What is not valid for errors holds rubbish, as it may.
            to.opcode = if entry.status == IBV_WC_SUCCESS { IBV_WC_RDMA_WRITE } else { 77 };
            got += 1;
        }
        got
    })
}
