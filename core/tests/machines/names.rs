//! Short ways to write the ids and times of a test.

use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{RequestId, SessionAddress, TransferId};
use kvbaton_core::sender::Reader;
use kvbaton_core::time::Timestamp;

pub fn request(name: &str) -> RequestId {
    RequestId::from(name)
}

pub fn transfer(name: &str) -> TransferId {
    TransferId::from(name)
}

pub fn session(port: u16) -> SessionAddress {
    SessionAddress { host: "10.0.0.2".into(), port }
}

/// The D rank `tp_rank` of the D at `port`.
pub fn reader(port: u16, tp_rank: u32) -> Reader {
    Reader { session: session(port), tp_rank }
}

/// One group of `len` blocks from `start`.
pub fn blocks(start: u32, len: u32) -> Vec<BlockList> {
    vec![BlockList::run(start, len)]
}

pub fn seconds(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}
