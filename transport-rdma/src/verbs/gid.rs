//! Which of a port's addresses peers are told `[F68]`.

use super::device::{Context, Port};
use super::error::VerbsError;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// A port's 16-byte address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// An empty entry.
    pub const NONE: Self = Self([0; 16]);

    /// The IP address that it is on Ethernet.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        let v6 = Ipv6Addr::from(self.0);
        v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
    }

    fn is_link_local(self) -> bool {
        match self.ip() {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        }
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.ip(), f)
    }
}

/// What a GID is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet, not routable.
    RoceV1,
    /// Ethernet over UDP.
    RoceV2,
    /// Something newer.
    Other,
}

impl GidKind {
    pub(super) const fn from_raw(raw: u32) -> Self {
        match raw {
            0 => Self::InfiniBand,
            1 => Self::RoceV1,
            2 => Self::RoceV2,
            _ => Self::Other,
        }
    }
}

/// One entry of a port's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GidEntry {
    /// Its index.
    pub index: u32,
    /// The address.
    pub gid: Gid,
    /// What it is for.
    pub kind: GidKind,
    /// Index of the network interface it belongs to; 0 where there is none.
    pub interface: u32,
}

impl Context {
    /// The GID to use: the one at `index`, else one that peers can reach, IPv4 before IPv6.
    ///
    /// # Errors
    /// When none is usable; says what there was instead.
    pub fn choose_gid(&self, port: &Port, index: Option<u8>) -> Result<GidEntry, VerbsError> {
        let entries = self.gids(port);
        choose(&entries, port.ethernet, index).map_err(|why| VerbsError::NoGid {
            device: self.name.clone(),
            port: port.number,
            why,
        })
    }
}

fn choose(entries: &[GidEntry], ethernet: bool, index: Option<u8>) -> Result<GidEntry, String> {
    if let Some(index) = index {
        let found = entries.iter().find(|entry| entry.index == u32::from(index));
        return found.copied().ok_or_else(|| format!("entry {index} is empty"));
    }
    let wanted = if ethernet { GidKind::RoceV2 } else { GidKind::InfiniBand };
    let of_kind = || entries.iter().filter(|entry| entry.kind == wanted);
    if !ethernet {
        return of_kind().next().copied().ok_or_else(|| "its table is empty".into());
    }
    // An entry without an interface outlives the address it stood for.
    let usable = |entry: &&GidEntry| !entry.gid.is_link_local() && !entry.gid.ip().is_loopback();
    of_kind()
        .filter(usable)
        .min_by_key(|entry| (entry.interface == 0, entry.gid.ip().is_ipv6(), entry.index))
        .copied()
        .ok_or_else(|| match of_kind().count() {
            0 => "no RoCE v2 entry".into(),
            _ => "its RoCE v2 entries are link-local only".into(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u32, ip: &str, kind: GidKind, interface: u32) -> GidEntry {
        let ip: IpAddr = ip.parse().expect("an address");
        let v6 = match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        GidEntry { index, gid: Gid(v6.octets()), kind, interface }
    }

    #[test]
    fn f68_a_routable_local_roce_v2_gid_is_chosen_and_never_a_link_local_one() {
        use GidKind::{RoceV1, RoceV2};
        let table = [
            entry(0, "fe80::1", RoceV1, 2),
            entry(1, "fe80::1", RoceV2, 2),
            entry(2, "10.0.0.7", RoceV1, 2),
            entry(3, "10.0.0.9", RoceV2, 0),
            entry(4, "fd00::7", RoceV2, 2),
            entry(5, "10.0.0.7", RoceV2, 2),
        ];
        let chosen = |entries: &[GidEntry], index| choose(entries, true, index).map(|e| e.index);
        assert_eq!(chosen(&table, None), Ok(5));
        assert_eq!(chosen(&table[..5], None), Ok(4));
        assert_eq!(chosen(&table[..4], None), Ok(3), "without an interface: the last resort");
        assert!(chosen(&table[..3], None).expect_err("none").contains("link-local"));
        assert!(chosen(&table[..1], None).expect_err("none").contains("no RoCE v2"));
        assert_eq!(chosen(&table, Some(1)), Ok(1), "as configured");
        assert!(chosen(&table, Some(9)).is_err());
    }
}
