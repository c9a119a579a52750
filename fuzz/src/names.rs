//! The few names that all runs use, made once per thread.

use kvbaton_core::ids::{RequestId, SessionAddress, TransferId};
use kvbaton_core::sender::Reader;
use std::sync::Arc;

/// Names by number.
#[derive(Debug, Clone)]
pub struct Names {
    /// `t0`…: transfers.
    pub transfers: Vec<TransferId>,
    /// `p0`…: P's requests.
    pub owners: Vec<RequestId>,
    /// `d0`…: D's requests.
    pub requests: Vec<RequestId>,
    /// D ranks: two ranks at each of two sessions.
    pub readers: Vec<Reader>,
    /// P ranks' addresses: their numbers.
    pub addresses: Vec<Arc<str>>,
}

thread_local!(static NAMES: Names = Names::new());

impl Names {
    fn new() -> Self {
        let session = |port| SessionAddress { host: "10.0.0.2".into(), port };
        let readers =
            (0..4).map(|at: u16| Reader { session: session(at / 2), tp_rank: u32::from(at % 2) });
        Self {
            transfers: (0..8).map(|at| format!("t{at}").into()).collect(),
            owners: (0..8).map(|at| format!("p{at}").into()).collect(),
            requests: (0..8).map(|at| format!("d{at}").into()).collect(),
            readers: readers.collect(),
            addresses: (0..8).map(|at| at.to_string().into()).collect(),
        }
    }

    /// This thread's names.
    #[must_use]
    pub fn of_thread() -> Self {
        NAMES.with(Clone::clone)
    }
}
