//! Stock peers: what vLLM's Mooncake connectors do, written anew from how they behave on the
//! wire. They know no grants, generations, drops, incarnations or fingerprints, and share no
//! machine with our nodes: only the wire's codec and the planner, which vectors check.
//!
//! What is faithful, because our nodes must live with it:
//!
//! - P waits for a prefill that it has never heard of, and tells nobody that a request was
//!   aborted, sent or expired: such a pull fails once P has waited long enough. Its patience
//!   starts anew whenever one request of the pull gets ready.
//! - P takes up [`Prefill::TASKS`] pulls at once; the others wait behind them.
//! - A write carries all requests that got ready together, and fails for all of them. A
//!   failed one leaves its blocks held until they expire.
//! - D keeps a dropped load's blocks until every P rank has answered, or a wait has passed.
//!   Nothing tells it that a connection broke.
//! - P announces its ranks once.
//!
//! What is not:
//!
//! - Memory of stock peers stays registered: sleep is refused.
//! - The simulated network neither duplicates nor reorders their control messages: ZeroMQ
//!   over TCP does not either, and they rely on it.
//! - A D of theirs takes a directory from which ranks are missing for a smaller engine, and
//!   loads a part of the KV, or hangs. Nobody else can prevent that; here the load fails.
//!
//! Hazards of theirs that no peer can see, which plans must not make (see
//! `scenarios::with_stock`): a stock D's process that comes back at the same data-plane
//! address takes late writes meant for the one before; a stock D that is not answered in
//! time, or whose write failed, reuses blocks that may still be written; a stock P
//! serves two pulls of one transfer id, and frees its blocks when as many have ended as ranks
//! read it.

mod decode;
mod layouts;
mod node;
mod prefill;
mod transfers;

pub use decode::Decode;
pub use node::{Setup, StockNode};
pub use prefill::Prefill;
