//! Newtypes for everything that has a unit or an identity.

use std::fmt;
use std::sync::Arc;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

macro_rules! opaque {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u64);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#018x}", self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#018x})"), self.0)
            }
        }
    };
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);
        impl $name {
            /// The name as it travels on the wire.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                Self(Arc::from(name))
            }
        }
        impl From<String> for $name {
            fn from(name: String) -> Self {
                Self(Arc::from(name))
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

number!(
    /// A block's index in a group's pool. Logical (the scheduler's) or kernel
    /// (the memory's) by context: see [`crate::blocks`].
    BlockId(u32)
);
number!(
    /// An absolute address in the process that owns the memory, in bytes.
    Address(u64)
);
number!(
    /// A length in bytes.
    Bytes(u64)
);

number!(
    /// Names the weights that KV was computed with `[R07]`: compared for equality only. Zero
    /// means "not stated", which fits any; engines that never update weights stay there.
    /// Counters keep pulls short.
    WeightVersion(u64)
);

impl WeightVersion {
    /// Whether KV of `other` may be used here: the same weights, or one side does not say.
    #[must_use]
    pub const fn fits(self, other: Self) -> bool {
        self.0 == other.0 || self.0 == 0 || other.0 == 0
    }
}

opaque!(
    /// Names one registered layout of one D process: random, odd, below 2^63,
    /// never a counter `[L01]`. Zero means "the layout rides with every pull".
    LayoutId
);
opaque!(
    /// Names one registration of memory in one process. Compared for equality
    /// only, never for order: a counter would repeat after a restart `[S02]`.
    Generation
);
opaque!(
    /// The right to write into the rows of one load, minted by D per load `[G01]`.
    Grant
);
opaque!(
    /// Names one run of one node's process, so that a pull meant for the process
    /// before a restart is answered at once `[P12]`. Zero means "not known".
    Incarnation
);

impl Incarnation {
    /// Whether a message that names the run `meant` is for this one; zero means that the
    /// peer does not know `[P12]`.
    #[must_use]
    pub fn is_meant(self, meant: Self) -> bool {
        meant == Self::default() || meant == self
    }
}

impl LayoutId {
    /// What a peer sends that does not know layout ids.
    pub const NONE: Self = Self(0);

    /// Makes an id from any random number: odd, below 2^63 `[L01]`.
    #[must_use]
    pub const fn from_random(random: u64) -> Self {
        Self((random >> 1) | 1)
    }

    /// Whether this is [`LayoutId::NONE`].
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

name!(
    /// A request as its own engine names it. P's and D's names of one request differ.
    RequestId
);
name!(
    /// One transfer of one request's KV, as the router named it for both sides.
    TransferId
);
name!(
    /// One engine, as the bootstrap server lists it; new after every restart.
    EngineId
);

/// Where a node's data plane is reached: a host name or address, and a port.
///
/// IPv6 addresses are written bare (`fd00::2`), as on the wire.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionAddress {
    /// Host name, IPv4 or bare IPv6 address.
    pub host: Arc<str>,
    /// TCP port (or the verbs transport's exchange port).
    pub port: u16,
}

impl fmt::Display for SessionAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l01_layout_ids_are_odd_63_bit_and_never_zero() {
        for random in [0, 1, 2, u64::MAX, u64::MAX - 1, 1 << 63] {
            let id = LayoutId::from_random(random);
            assert_eq!(id.0 % 2, 1);
            assert!(id.0 < 1 << 63);
            assert!(!id.is_none());
        }
    }

    #[test]
    fn a_session_prints_ipv6_in_brackets() {
        let v6 = SessionAddress { host: "fd00::2".into(), port: 1 };
        let v4 = SessionAddress { host: "10.0.0.2".into(), port: 1 };
        assert_eq!(v6.to_string(), "[fd00::2]:1");
        assert_eq!(v4.to_string(), "10.0.0.2:1");
    }
}
