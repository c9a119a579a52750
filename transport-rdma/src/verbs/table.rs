//! Functions of libibverbs, looked up by name at run time.
//!
//! The header's inline functions (`ibv_post_send`, `ibv_poll_cq`, …) go through the
//! operations of a context, as they do in C.

use super::bindings::{
    ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr,
    ibv_gid_entry, ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
};
use super::error::VerbsError;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

macro_rules! table {
    ($($name:ident, $symbol:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions that this crate uses.
        pub(super) struct Table {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Absent before rdma-core 34.
            pub(super) reg_dmabuf_mr: Option<RegDmabufMr>,
        }

        impl Table {
            /// Looks every function up.
            ///
            /// # Safety
            /// `find` must yield functions that have the types of rdma-core's, for ever.
            unsafe fn resolve(find: &Find<'_>) -> Result<Self, VerbsError> {
                $(
                    let symbol = find($symbol).ok_or_else(|| VerbsError::missing($symbol))?;
                    // SAFETY: the caller vouches for the function's type and life.
                    let $name = unsafe {
                        std::mem::transmute::<
                            NonNull<c_void>,
                            unsafe extern "C" fn($($argument),*) $(-> $result)?,
                        >(symbol)
                    };
                )*
                // SAFETY: as above.
                let reg_dmabuf_mr = find(c"ibv_reg_dmabuf_mr").map(|symbol| unsafe {
                    std::mem::transmute::<NonNull<c_void>, RegDmabufMr>(symbol)
                });
                Ok(Self { $($name,)* reg_dmabuf_mr })
            }
        }
    };
}

/// Finds a function by name.
pub type Find<'a> = dyn Fn(&CStr) -> Option<NonNull<c_void>> + 'a;

type RegDmabufMr = unsafe extern "C" fn(*mut ibv_pd, u64, usize, u64, c_int, c_int) -> *mut ibv_mr;

table! {
    get_device_list, c"ibv_get_device_list": fn(*mut c_int) -> *mut *mut ibv_device;
    free_device_list, c"ibv_free_device_list": fn(*mut *mut ibv_device);
    get_device_name, c"ibv_get_device_name": fn(*mut ibv_device) -> *const c_char;
    open_device, c"ibv_open_device": fn(*mut ibv_device) -> *mut ibv_context;
    close_device, c"ibv_close_device": fn(*mut ibv_context) -> c_int;
    query_device, c"ibv_query_device": fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    query_port, c"ibv_query_port": fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    query_gid_ex, c"_ibv_query_gid_ex":
        fn(*mut ibv_context, u32, u32, *mut ibv_gid_entry, u32, usize) -> c_int;
    get_async_event, c"ibv_get_async_event":
        fn(*mut ibv_context, *mut ibv_async_event) -> c_int;
    ack_async_event, c"ibv_ack_async_event": fn(*mut ibv_async_event);
    alloc_pd, c"ibv_alloc_pd": fn(*mut ibv_context) -> *mut ibv_pd;
    dealloc_pd, c"ibv_dealloc_pd": fn(*mut ibv_pd) -> c_int;
    reg_mr, c"ibv_reg_mr": fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    dereg_mr, c"ibv_dereg_mr": fn(*mut ibv_mr) -> c_int;
    create_comp_channel, c"ibv_create_comp_channel":
        fn(*mut ibv_context) -> *mut ibv_comp_channel;
    destroy_comp_channel, c"ibv_destroy_comp_channel": fn(*mut ibv_comp_channel) -> c_int;
    create_cq, c"ibv_create_cq":
        fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    destroy_cq, c"ibv_destroy_cq": fn(*mut ibv_cq) -> c_int;
    get_cq_event, c"ibv_get_cq_event":
        fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ack_cq_events, c"ibv_ack_cq_events": fn(*mut ibv_cq, c_uint);
    create_qp, c"ibv_create_qp": fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    modify_qp, c"ibv_modify_qp": fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    destroy_qp, c"ibv_destroy_qp": fn(*mut ibv_qp) -> c_int;
}

/// A loaded libibverbs; cheap to clone.
#[derive(Clone)]
pub struct Verbs(pub(super) Arc<Table>);

impl std::fmt::Debug for Verbs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Verbs(..)")
    }
}

impl Verbs {
    /// The system's libibverbs, opened at the first call and never closed.
    ///
    /// # Errors
    /// When rdma-core is not installed, or too old.
    pub fn system() -> Result<Self, VerbsError> {
        static SYSTEM: OnceLock<Result<Verbs, VerbsError>> = OnceLock::new();
        SYSTEM
            // SAFETY: this name is rdma-core's, whose interface has been stable since 2005.
            .get_or_init(|| unsafe { Self::open(c"libibverbs.so.1") })
            .clone()
    }

    /// A library in place of the system's.
    ///
    /// # Safety
    /// It must behave as rdma-core's does.
    ///
    /// # Errors
    /// When it cannot be opened or lacks a function.
    pub unsafe fn open(library: &CStr) -> Result<Self, VerbsError> {
        let handle = open_library(library)
            .map_err(|reason| VerbsError::Library { reason: reason.into() })?;
        // SAFETY: the caller vouches for the library, which is never closed.
        unsafe { Self::from_symbols(&|name| find(handle, name)) }
    }

    /// Functions from wherever `find` has them.
    ///
    /// # Safety
    /// What `find` yields must behave as rdma-core's functions of these names, for ever.
    ///
    /// # Errors
    /// When one is missing.
    pub unsafe fn from_symbols(find: &Find<'_>) -> Result<Self, VerbsError> {
        // SAFETY: the caller vouches for the functions.
        Ok(Self(Arc::new(unsafe { Table::resolve(find) }?)))
    }
}

/// Opens a shared library and keeps it open.
pub(crate) fn open_library(name: &CStr) -> Result<NonNull<c_void>, String> {
    // SAFETY: a terminated name; the library's initialisers are trusted like any linked one's.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    NonNull::new(handle).ok_or_else(|| {
        // SAFETY: plain call right after the failure.
        let text = unsafe { libc::dlerror() };
        if text.is_null() {
            return "the system gives no reason".into();
        }
        // SAFETY: dlerror yields a terminated text that lives until the next call.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    })
}

/// A symbol of a library that [`open_library`] opened.
pub(crate) fn find(handle: NonNull<c_void>, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: an open handle and a terminated name.
    NonNull::new(unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) })
}
