//! Addresses: they say whose they are.

use kvbaton_core::ids::SessionAddress;
use std::sync::Arc;

/// Port of the control plane.
const CONTROL: u16 = 7000;
/// Port of the data plane.
const DATA: u16 = 7001;

/// The host of a rank; `home` changes when its engine comes back elsewhere.
fn host(engine: u16, rank: u16, home: u16) -> String {
    format!("10.{engine}.{rank}.{home}")
}

/// Control-plane address of a rank.
#[must_use]
pub fn control(engine: u16, rank: u16, home: u16) -> Arc<str> {
    format!("tcp://{}:{CONTROL}", host(engine, rank, home)).into()
}

/// Data-plane session of a rank.
#[must_use]
pub fn session(engine: u16, rank: u16, home: u16) -> SessionAddress {
    SessionAddress { host: host(engine, rank, home).into(), port: DATA }
}

/// The bootstrap server of an engine.
#[must_use]
pub fn bootstrap(engine: u16, home: u16) -> Arc<str> {
    format!("http://{}:8998", host(engine, 0, home)).into()
}

/// The engine of a control-plane address, a host or a bootstrap server.
#[must_use]
pub fn engine_of(address: &str) -> Option<u16> {
    let host = address.rsplit("//").next()?;
    host.split('.').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_their_engine() {
        assert_eq!(engine_of(&control(3, 1, 0)), Some(3));
        assert_eq!(engine_of(&session(4, 1, 2).host), Some(4));
        assert_eq!(engine_of(&bootstrap(5, 1)), Some(5));
        assert_eq!(engine_of("elsewhere"), None);
        assert_ne!(control(3, 1, 0), control(3, 1, 1));
    }
}
