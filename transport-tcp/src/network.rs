//! Where this node may connect to `[Z05]`.
//!
//! Addresses come with requests and from directories; whoever can shape those must not
//! be able to point a node at an arbitrary host.

use ipnet::IpNet;
use kvbaton_actors::transport::TransportError;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Longest host name taken from a peer, in bytes (the DNS bound).
const MAX_HOST: usize = 253;

/// Cloud metadata services answer at these, nothing of ours does: a network that
/// merely contains them does not allow them.
const METADATA: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// The networks that peers may live in `[Z05]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedNetworks {
    networks: Vec<IpNet>,
}

impl Default for AllowedNetworks {
    /// Loopback, private (RFC 1918, unique local) and link-local networks.
    fn default() -> Self {
        let networks = [
            "127.0.0.0/8",
            "::1/128",
            "10.0.0.0/8",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "fc00::/7",
            "169.254.0.0/16",
            "fe80::/10",
        ];
        Self { networks: networks.iter().filter_map(|network| network.parse().ok()).collect() }
    }
}

/// An entry of `allowed_networks` that is neither a network nor an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "allowed_networks: {entry:?} is neither a network (10.1.0.0/16) nor an address (10.1.2.3); host names are not taken here"
)]
pub struct NetworkError {
    /// The entry as configured.
    pub entry: String,
}

impl AllowedNetworks {
    /// Exactly these networks; an empty list allows nothing.
    #[must_use]
    pub const fn new(networks: Vec<IpNet>) -> Self {
        Self { networks }
    }

    /// Parses networks (`10.1.0.0/16`) and single addresses (`10.1.2.3`).
    ///
    /// # Errors
    /// The first entry that is neither.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, NetworkError> {
        let parse = |entry: &str| {
            IpNet::from_str(entry)
                .or_else(|_| IpAddr::from_str(entry).map(IpNet::from))
                .map_err(|_| NetworkError { entry: entry.to_owned() })
        };
        let networks =
            entries.into_iter().map(|entry| parse(entry.trim())).collect::<Result<_, _>>();
        Ok(Self { networks: networks? })
    }

    /// Whether a peer may live at `ip`. An IPv4 address inside IPv6 (`::ffff:a.b.c.d`)
    /// counts as the IPv4 address it is.
    #[must_use]
    pub fn permits(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        if METADATA.contains(&ip) {
            return self.networks.contains(&IpNet::from(ip));
        }
        self.networks.iter().any(|network| network.contains(&ip))
    }

    /// Checks one address.
    ///
    /// # Errors
    /// [`TransportError::AddressNotAllowed`], which lists what is allowed.
    pub fn check(&self, ip: IpAddr) -> Result<(), TransportError> {
        self.check_named(&ip.to_string(), ip)
    }

    /// Resolves a host and checks every address it has: one that is not allowed
    /// refuses the host. Connect to what this returns, never to the name again, or
    /// another answer of the name server would get around the check.
    ///
    /// # Errors
    /// [`TransportError::AddressNotAllowed`], or [`TransportError::Unreachable`] when
    /// the name does not resolve. The caller bounds the time.
    pub async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, TransportError> {
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let unreachable =
            |reason: String| TransportError::Unreachable { peer: join(bare, port), reason };
        if bare.is_empty() || bare.len() > MAX_HOST || !bare.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(unreachable("this is not a host name".to_owned()));
        }
        if let Ok(ip) = bare.parse::<IpAddr>() {
            self.check_named(bare, ip)?;
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let found = tokio::net::lookup_host((bare, port)).await;
        let found: Vec<_> = found.map_err(|error| unreachable(error.to_string()))?.collect();
        if found.is_empty() {
            return Err(unreachable("the name has no address".to_owned()));
        }
        for address in &found {
            self.check_named(&format!("{bare} ({})", address.ip()), address.ip())?;
        }
        Ok(found)
    }

    fn check_named(&self, name: &str, ip: IpAddr) -> Result<(), TransportError> {
        if self.permits(ip) {
            return Ok(());
        }
        Err(TransportError::AddressNotAllowed {
            address: name.to_owned(),
            allowed: self.to_string(),
        })
    }
}

impl fmt::Display for AllowedNetworks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.networks.is_empty() {
            return f.write_str("none");
        }
        for (i, network) in self.networks.iter().enumerate() {
            write!(f, "{}{network}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// A host and port as peers write them: `scheme://host:port`, IPv6 in brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Host name, IPv4 or bare IPv6 address.
    pub host: String,
    /// TCP port, never 0.
    pub port: u16,
}

impl Endpoint {
    /// Parses `scheme://host:port`, with nothing else before or after.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(address: &str, scheme: &str) -> Result<Self, &'static str> {
        let rest = address
            .strip_prefix(scheme)
            .and_then(|rest| rest.strip_prefix("://"))
            .ok_or("an address of another scheme")?;
        let (host, port) = rest.rsplit_once(':').ok_or("an address without a port")?;
        let host = match host.strip_prefix('[') {
            Some(inner) => {
                let inner = inner.strip_suffix(']').ok_or("an address with a lone bracket")?;
                inner.parse::<Ipv6Addr>().map_err(|_| "brackets around what is not IPv6")?;
                inner
            }
            None => host,
        };
        let named = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        let is_ip = host.parse::<IpAddr>().is_ok();
        if host.is_empty() || host.len() > MAX_HOST || !(is_ip || host.bytes().all(named)) {
            return Err("an address whose host is not a host name");
        }
        match port.parse() {
            Ok(0) | Err(_) => Err("an address whose port is not 1 to 65535"),
            Ok(port) => Ok(Self { host: host.to_owned(), port }),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&join(&self.host, self.port))
    }
}

fn join(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
