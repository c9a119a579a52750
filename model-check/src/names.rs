//! Names of what a world is made of, by number.

use kvbaton_core::ids::{
    EngineId, Generation, Grant, Incarnation, LayoutId, RequestId, TransferId,
};
use std::sync::Arc;

/// The transfer of a request.
pub fn transfer(number: u8) -> TransferId {
    TransferId::from(format!("t{number}"))
}

/// Its number.
pub fn number(name: &str) -> u8 {
    name[1..].parse().expect("a letter and a number")
}

/// P's name of a request.
pub fn prefill_request(number: u8) -> RequestId {
    RequestId::from(format!("p{number}"))
}

/// D's name of a request.
pub fn decode_request(number: u8) -> RequestId {
    RequestId::from(format!("d{number}"))
}

/// P's engine after so many restarts.
pub fn engine(restarts: u8) -> EngineId {
    EngineId::from(format!("e{restarts}"))
}

/// A P rank's address, the same after a restart.
pub fn address(rank: u8) -> Arc<str> {
    format!("r{rank}").into()
}

/// P's process after so many restarts.
pub fn incarnation(restarts: u8) -> Incarnation {
    Incarnation(1 + u64::from(restarts))
}

/// The grant of a load.
pub fn grant(load: u8) -> Grant {
    Grant(1 + u64::from(load))
}

/// The generation of a node's registration.
pub fn generation(registration: u8) -> Generation {
    Generation(1 + u64::from(registration))
}

/// The layout id of a node's registration.
pub fn layout_id(registration: u8) -> LayoutId {
    LayoutId::from_random(u64::from(registration) << 2)
}
