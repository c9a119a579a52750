//! Named places of the simulated planes and engines that misbehave now and then. A run arms
//! some; an armed site fires one time in four until the world heals.

/// All sites.
pub const ALL: &[&str] = &[
    ACK_LOST,
    BOOTSTRAP_REFUSES,
    BOOTSTRAP_SLOW,
    CANCEL_IGNORED,
    COMPUTE_SLOW,
    CONNECT_REFUSED,
    EVENTS_LATE,
    GRANT_REFUSED,
    HOLD_LATE,
    MEMORY_FAILS,
    MEMORY_SLOW,
    PIECES_REVERSED,
    REGISTER_REFUSED,
    REVOKE_SLOW,
    UNREGISTER_FAILS,
    UNREGISTER_SLOW,
    WEIGHTS_FIRST,
    WRITE_LATE,
    WRITE_STALE,
    WRITE_STRAYS,
];

/// A write's last acknowledgement gets lost: all of it landed, its issuer times out.
pub const ACK_LOST: &str = "ack-lost";
/// A bootstrap server refuses.
pub const BOOTSTRAP_REFUSES: &str = "bootstrap-refuses";
/// A bootstrap server takes up to two seconds.
pub const BOOTSTRAP_SLOW: &str = "bootstrap-slow";
/// A write that should end early goes on to its end.
pub const CANCEL_IGNORED: &str = "cancel-ignored";
/// A step takes up to 300 ms.
pub const COMPUTE_SLOW: &str = "compute-slow";
/// A control connection is refused.
pub const CONNECT_REFUSED: &str = "connect-refused";
/// An engine takes up to 400 ms to look at its node's events.
pub const EVENTS_LATE: &str = "events-late";
/// A data plane refuses to open a grant.
pub const GRANT_REFUSED: &str = "grant-refused";
/// An engine takes up to 500 ms between computing a request and holding it.
pub const HOLD_LATE: &str = "hold-late";
/// An engine cannot map or unmap its memory, or load weights.
pub const MEMORY_FAILS: &str = "memory-fails";
/// Mapping, unmapping and loading weights takes up to 500 ms.
pub const MEMORY_SLOW: &str = "memory-slow";
/// A write's pieces land last first.
pub const PIECES_REVERSED: &str = "pieces-reversed";
/// A data plane refuses to register again.
pub const REGISTER_REFUSED: &str = "register-refused";
/// Revoking takes up to 200 ms, and what comes meanwhile still lands.
pub const REVOKE_SLOW: &str = "revoke-slow";
/// A data plane fails to unregister.
pub const UNREGISTER_FAILS: &str = "unregister-fails";
/// Unregistering takes up to 500 ms.
pub const UNREGISTER_SLOW: &str = "unregister-slow";
/// Nodes hear of new weights before their engine has taken its blocks back, as engines may do
/// that have a lifecycle of their own.
pub const WEIGHTS_FIRST: &str = "weights-first";
/// A write waits up to 300 ms in its data plane before its first piece.
pub const WRITE_LATE: &str = "write-late";

/// P's data plane names the registration that it knew of D before, as caches of keys do: D
/// has to refuse it.
pub const WRITE_STALE: &str = "write-stale";
/// A piece of a write is sent to an address outside the load's rows: D has to refuse it.
pub const WRITE_STRAYS: &str = "write-strays";

#[cfg(test)]
mod tests {
    #[test]
    fn sites_are_listed_once_and_in_order() {
        assert!(super::ALL.is_sorted_by(|a, b| a < b));
    }
}
