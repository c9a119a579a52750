//! What can go wrong below the data plane, and what to do about it.

use kvbaton_actors::transport::TransportError;
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Why a verbs call failed: what, on which device, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerbsError {
    /// rdma-core is not there.
    #[error(
        "RDMA is not available: {reason}; install rdma-core (Debian: libibverbs1 and \
         ibverbs-providers) or use the TCP transport"
    )]
    Library {
        /// The loader's words.
        reason: Arc<str>,
    },
    /// No device at all.
    #[error(
        "RDMA is not available: this machine has no RDMA device; check `rdma link` and that the \
         adapter's driver and ib_uverbs are loaded, or use the TCP transport"
    )]
    NoDevice,
    /// A configured device is not there.
    #[error("there is no RDMA device {wanted}; there are: {there}")]
    UnknownDevice {
        /// The configured name.
        wanted: String,
        /// The names that exist.
        there: String,
    },
    /// A port that cannot carry data.
    #[error("RDMA device {device} port {port} is {state}; bring its link up (`rdma link`)")]
    PortDown {
        /// Device.
        device: Arc<str>,
        /// Port number, from 1.
        port: u8,
        /// Its state.
        state: &'static str,
    },
    /// No address that peers could reach `[F68]`.
    #[error(
        "RDMA device {device} port {port} has no usable GID ({why}); give its network interface \
         a routable IP address, or set the GID index"
    )]
    NoGid {
        /// Device.
        device: Arc<str>,
        /// Port number, from 1.
        port: u8,
        /// What was found instead.
        why: String,
    },
    /// A call failed.
    #[error("{call} on RDMA device {device}{detail}: {reason}{remedy}")]
    Call {
        /// The verb.
        call: &'static str,
        /// Device.
        device: Arc<str>,
        /// Attributes that matter, with a leading space, or nothing.
        detail: String,
        /// The error number.
        errno: i32,
        /// The system's words for it.
        reason: String,
        /// What to do, with a leading separator, or nothing.
        remedy: &'static str,
    },
}

impl VerbsError {
    pub(super) fn missing(symbol: &CStr) -> Self {
        let symbol = symbol.to_string_lossy();
        Self::Library { reason: format!("libibverbs lacks {symbol}; it is too old").into() }
    }

    /// A failed call. `detail` says which attributes and states it was about.
    pub(super) fn call(
        call: &'static str,
        device: &Arc<str>,
        detail: impl fmt::Display,
        errno: i32,
    ) -> Self {
        let detail = detail.to_string();
        let detail = if detail.is_empty() { detail } else { format!(" ({detail})") };
        let reason = io::Error::from_raw_os_error(errno).to_string();
        Self::Call {
            call,
            device: device.clone(),
            detail,
            errno,
            reason,
            remedy: remedy(call, errno),
        }
    }

    /// The error number of a failed call.
    #[must_use]
    pub const fn errno(&self) -> Option<i32> {
        match self {
            Self::Call { errno, .. } => Some(*errno),
            _ => None,
        }
    }
}

/// The error number of the calling thread's last failed call.
pub(super) fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// What an operator does about it.
fn remedy(call: &str, errno: i32) -> &'static str {
    let registers = matches!(call, "ibv_reg_mr" | "ibv_reg_dmabuf_mr");
    match errno {
        libc::ENOMEM if registers => {
            "; pinned memory is limited: raise the memlock limit (`ulimit -l unlimited`, \
             LimitMEMLOCK=infinity, or --ulimit memlock=-1 for a container)"
        }
        libc::ENOMEM | libc::ENOSPC => {
            "; the device has no more of these, or memory may not be pinned: lower \
             `queue_pairs` or `queue_depth`, raise the memlock limit"
        }
        libc::EPERM | libc::EACCES => {
            "; let the process read and write /dev/infiniband (group `rdma`, or \
             --device=/dev/infiniband for a container)"
        }
        libc::ENODEV | libc::EIO => "; the device is gone or failed: see the kernel log",
        libc::EOPNOTSUPP => "; this device or driver does not do that",
        libc::EFAULT if registers => "; a part of the range is not mapped",
        _ => "",
    }
}

impl From<VerbsError> for TransportError {
    fn from(error: VerbsError) -> Self {
        Self::Local { what: "RDMA".into(), reason: error.to_string() }
    }
}
