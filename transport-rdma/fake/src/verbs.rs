//! The functions of libibverbs, under their names.
//!
//! Their callers promise what they promise rdma-core: pointers are those that these
//! functions gave out and have not taken back, or lead to live structures.
#![allow(clippy::missing_safety_doc, reason = "the safety contract is rdma-core's, see above")]

use crate::bindings::*;
use crate::control::NewDevice;
use crate::objects::{bell, close, free, number, pointer, set_errno, wait, zeroed};
use crate::queue_pairs::{
    ibv_create_qp, ibv_destroy_qp, ibv_modify_qp, poll_cq, post_send, req_notify_cq,
};
use crate::world::{CompletionState, ContextState, Event, RegionState, with};
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::{NonNull, null_mut};

macro_rules! symbols {
    ($($name:ident),* $(,)?) => {
        /// The function of that name, as a loader would find it.
        #[must_use]
        pub fn symbol(name: &CStr) -> Option<NonNull<c_void>> {
            let pointer = match name.to_str().ok()? {
                $(stringify!($name) => $name as *mut c_void,)*
                _ => return None,
            };
            NonNull::new(pointer)
        }
    };
}

symbols![
    ibv_get_device_list,
    ibv_free_device_list,
    ibv_get_device_name,
    ibv_open_device,
    ibv_close_device,
    ibv_query_device,
    ibv_query_port,
    _ibv_query_gid_ex,
    ibv_get_async_event,
    ibv_ack_async_event,
    ibv_alloc_pd,
    ibv_dealloc_pd,
    ibv_reg_mr,
    ibv_reg_dmabuf_mr,
    ibv_dereg_mr,
    ibv_create_comp_channel,
    ibv_destroy_comp_channel,
    ibv_create_cq,
    ibv_destroy_cq,
    ibv_get_cq_event,
    ibv_ack_cq_events,
    ibv_create_qp,
    ibv_modify_qp,
    ibv_destroy_qp,
];

/// The number that a context keeps where a driver keeps its descriptor.
pub(crate) fn id(context: *mut ibv_context) -> c_int {
    // SAFETY: a context that `ibv_open_device` gave out, see above.
    unsafe { (*context).cmd_fd }
}

pub(crate) fn fail<T>(errno: c_int) -> *mut T {
    set_errno(errno);
    null_mut()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let mut list: Vec<*mut ibv_device> = with(|world| {
        if world.devices.is_empty() {
            world.add_device(NewDevice::default());
        }
        world.devices.iter().map(|it| pointer(it.raw)).collect()
    });
    if !count.is_null() {
        // SAFETY: a live number, see above.
        unsafe { *count = list.len() as c_int };
    }
    list.push(null_mut());
    Box::into_raw(list.into_boxed_slice()).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    let mut len = 1;
    // SAFETY: the list ends with a null pointer.
    while unsafe { !(*list.add(len - 1)).is_null() } {
        len += 1;
    }
    // SAFETY: a boxed slice of this length, see above.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, len)) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: devices are never freed.
    unsafe { (&raw const (*device).name).cast() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    let opened = with(|world| {
        let index = world.devices.iter().position(|it| it.raw == number(device)).expect("ours");
        if let Some(errno) = world.devices[index].failure("ibv_open_device") {
            return Err(errno);
        }
        let (id, async_fd) = (world.fresh() as c_int, bell());
        let events = VecDeque::new();
        world.contexts.insert(id, ContextState { device: index, async_fd, events });
        Ok((id, async_fd))
    });
    let (id, async_fd) = match opened {
        Ok(opened) => opened,
        Err(errno) => return fail(errno),
    };
    // SAFETY: numbers, pointers and optional functions: all zeroes is valid.
    let mut context = unsafe { zeroed::<ibv_context>() };
    context.device = device;
    context.cmd_fd = id;
    context.async_fd = async_fd;
    context.num_comp_vectors = 1;
    context.ops.poll_cq = Some(poll_cq);
    context.ops.req_notify_cq = Some(req_notify_cq);
    context.ops.post_send = Some(post_send);
    Box::into_raw(context)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    if let Some(state) = with(|world| world.contexts.remove(&id(context))) {
        close(state.async_fd);
    }
    // SAFETY: made by `ibv_open_device`, closed once.
    unsafe { free(context) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attributes: *mut ibv_device_attr,
) -> c_int {
    with(|world| {
        if let Some(errno) = world.failure(id(context), "ibv_query_device") {
            return errno;
        }
        let spec = &world.device_of(id(context)).spec;
        // SAFETY: a live structure.
        let to = unsafe { &mut *attributes };
        to.max_mr_size = spec.max_mr_size;
        to.max_mr = 1 << 20;
        to.max_qp = 1 << 16;
        to.max_qp_wr = spec.max_qp_wr;
        to.max_sge = spec.max_sge;
        to.max_cqe = spec.max_cqe;
        to.phys_port_cnt = 1;
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attributes: *mut ibv_port_attr,
) -> c_int {
    with(|world| {
        if let Some(errno) = world.failure(id(context), "ibv_query_port") {
            return errno;
        }
        if port != 1 {
            return libc::EINVAL;
        }
        let up = world.device_of(id(context)).port_up;
        // SAFETY: a live structure.
        let to = unsafe { &mut *attributes };
        to.state = if up { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN };
        (to.max_mtu, to.active_mtu) = (IBV_MTU_4096, IBV_MTU_1024);
        to.gid_tbl_len = 2;
        to.max_msg_sz = 1 << 31;
        to.link_layer = IBV_LINK_LAYER_ETHERNET as u8;
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    _flags: u32,
    _size: usize,
) -> c_int {
    let gid = match index {
        // Every Ethernet port has a link-local address first.
        0 => {
            let mut gid = [0; 16];
            (gid[0], gid[1], gid[15]) = (0xfe, 0x80, 1);
            gid
        }
        1 => with(|world| world.device_of(id(context)).gid),
        _ => return libc::ENODATA,
    };
    // SAFETY: a live structure.
    let to = unsafe { &mut *entry };
    to.gid.raw = gid;
    (to.gid_index, to.port_num) = (index, port);
    (to.gid_type, to.ndev_ifindex) = (IBV_GID_TYPE_ROCE_V2, 7);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: the context is open.
    let bell = unsafe { (*context).async_fd };
    if !wait(bell) {
        return -1;
    }
    let Some((kind, about)) =
        with(|world| world.contexts.get_mut(&id(context))?.events.pop_front())
    else {
        return -1;
    };
    // SAFETY: a live structure.
    let to = unsafe { &mut *event };
    to.event_type = kind;
    match about {
        Event::Port(port) => to.element.port_num = port,
        Event::QueuePair(raw) => to.element.qp = pointer(raw),
        Event::Nothing => {}
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(_event: *mut ibv_async_event) {}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let made = with(|world| {
        if let Some(errno) = world.failure(id(context), "ibv_alloc_pd") {
            return Err(errno);
        }
        let handle = world.fresh();
        world.domains.insert(handle, id(context));
        Ok(handle)
    });
    match made {
        Ok(handle) => Box::into_raw(Box::new(ibv_pd { context, handle })),
        Err(errno) => fail(errno),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(domain: *mut ibv_pd) -> c_int {
    // SAFETY: made by `ibv_alloc_pd`, freed once.
    unsafe {
        with(|world| world.domains.remove(&(*domain).handle));
        free(domain);
    }
    0
}

fn register(
    domain: *mut ibv_pd,
    call: &'static str,
    start: u64,
    len: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: a live domain.
    let (context, handle) = unsafe { ((*domain).context, (*domain).handle) };
    let made = with(|world| {
        if let Some(errno) = world.failure(id(context), call) {
            return Err(errno);
        }
        let spec = &world.device_of(id(context)).spec;
        if len as u64 > spec.max_mr_size || len == 0 {
            return Err(libc::EINVAL);
        }
        if call == "ibv_reg_dmabuf_mr" && !spec.dmabuf {
            return Err(libc::EOPNOTSUPP);
        }
        let key = world.fresh();
        let (len, access) = (len as u64, access as u32);
        world.regions.insert(key, RegionState { domain: handle, start, len, access });
        Ok(key)
    });
    match made {
        Err(errno) => fail(errno),
        Ok(key) => Box::into_raw(Box::new(ibv_mr {
            context,
            pd: domain,
            addr: pointer(start as usize),
            length: len,
            handle: key,
            lkey: key,
            rkey: key,
        })),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr(
    domain: *mut ibv_pd,
    start: *mut c_void,
    len: usize,
    access: c_int,
) -> *mut ibv_mr {
    register(domain, "ibv_reg_mr", number(start) as u64, len, access)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_dmabuf_mr(
    domain: *mut ibv_pd,
    _offset: u64,
    len: usize,
    start: u64,
    _fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    register(domain, "ibv_reg_dmabuf_mr", start, len, access)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(region: *mut ibv_mr) -> c_int {
    // SAFETY: a live region.
    let (context, key) = unsafe { ((*region).context, (*region).handle) };
    let refused = with(|world| {
        let refused = world.failure(id(context), "ibv_dereg_mr");
        if refused.is_none() {
            world.regions.remove(&key);
        }
        refused
    });
    if let Some(errno) = refused {
        return errno;
    }
    // SAFETY: made by `register`, freed once.
    unsafe { free(region) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    if let Some(errno) = with(|world| world.failure(id(context), "ibv_create_comp_channel")) {
        return fail(errno);
    }
    Box::into_raw(Box::new(ibv_comp_channel { context, fd: bell(), refcnt: 0 }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: made by `ibv_create_comp_channel`, freed once.
    unsafe {
        with(|world| world.notifications.remove(&(*channel).fd));
        close((*channel).fd);
        free(channel);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    entries: c_int,
    _user: *mut c_void,
    channel: *mut ibv_comp_channel,
    _vector: c_int,
) -> *mut ibv_cq {
    let made = with(|world| {
        if let Some(errno) = world.failure(id(context), "ibv_create_cq") {
            return Err(errno);
        }
        if entries < 1 || entries > world.device_of(id(context)).spec.max_cqe {
            return Err(libc::EINVAL);
        }
        Ok(world.fresh())
    });
    let handle = match made {
        Ok(handle) => handle,
        Err(errno) => return fail(errno),
    };
    // SAFETY: numbers and pointers: all zeroes is valid.
    let mut queue = unsafe { zeroed::<ibv_cq>() };
    (queue.context, queue.channel, queue.handle, queue.cqe) = (context, channel, handle, entries);
    let raw = Box::into_raw(queue);
    // SAFETY: null, or a live channel.
    let channel = unsafe { channel.as_ref() }.map(|it| it.fd);
    with(|world| {
        let (raw, context, capacity) = (number(raw), id(context), entries as usize);
        let entries = VecDeque::new();
        let state = CompletionState { raw, context, channel, capacity, entries, armed: false };
        world.completions.insert(handle, state);
    });
    raw
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_cq(queue: *mut ibv_cq) -> c_int {
    // SAFETY: made by `ibv_create_cq`, destroyed once.
    unsafe {
        with(|world| world.completions.remove(&(*queue).handle));
        free(queue);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    queue: *mut *mut ibv_cq,
    user: *mut *mut c_void,
) -> c_int {
    // SAFETY: a live channel.
    let bell = unsafe { (*channel).fd };
    if !wait(bell) {
        return -1;
    }
    let found = with(|world| world.notifications.get_mut(&bell)?.pop_front());
    // SAFETY: live pointers.
    unsafe {
        *queue = found.map_or(null_mut(), pointer);
        *user = null_mut();
    }
    if found.is_some() { 0 } else { -1 }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(_queue: *mut ibv_cq, _count: c_uint) {}
