//! Where a node may connect to.

mod rig;

use kvbaton_actors::transport::TransportError;
use kvbaton_transport_tcp::network::{AllowedNetworks, Endpoint};
use rig::run;
use std::net::IpAddr;

fn permitted(networks: &AllowedNetworks, ip: &str) -> bool {
    networks.permits(ip.parse::<IpAddr>().unwrap())
}

#[test]
fn z05_the_default_is_loopback_and_private() {
    let default = AllowedNetworks::default();
    for ip in [
        "127.0.0.1",
        "127.9.9.9",
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.1.1",
        "::1",
        "fd00::2",
        "fe80::1",
        "::ffff:10.0.0.1",
        "::ffff:127.0.0.1",
    ] {
        assert!(permitted(&default, ip), "{ip}");
    }
    for ip in [
        "8.8.8.8",
        "0.0.0.0",
        "172.32.0.1",
        "192.169.0.1",
        "11.0.0.1",
        "::",
        "2001:db8::1",
        "::ffff:8.8.8.8",
        "224.0.0.1",
        "255.255.255.255",
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "fd00:ec2::254",
    ] {
        assert!(!permitted(&default, ip), "{ip}");
    }
}

#[test]
fn z05_a_configured_list_replaces_the_default() {
    let networks = AllowedNetworks::parse(["203.0.113.0/24", " 2001:db8::7 "]).unwrap();
    assert!(permitted(&networks, "203.0.113.9"));
    assert!(permitted(&networks, "::ffff:203.0.113.9"));
    assert!(permitted(&networks, "2001:db8::7"));
    assert!(!permitted(&networks, "2001:db8::8"));
    assert!(!permitted(&networks, "127.0.0.1"));
    assert!(permitted(&AllowedNetworks::parse(["169.254.169.254"]).unwrap(), "169.254.169.254"));
    let error = AllowedNetworks::parse(["10.0.0.0/8", "example.org"]).unwrap_err();
    assert!(error.to_string().contains("example.org"));
}

#[test]
fn z05_the_error_lists_what_is_allowed() {
    let networks = AllowedNetworks::parse(["10.1.0.0/16", "fd00::/8"]).unwrap();
    let error = networks.check("8.8.8.8".parse().unwrap()).unwrap_err().to_string();
    for part in ["8.8.8.8", "10.1.0.0/16", "fd00::/8", "allowed_networks"] {
        assert!(error.contains(part), "{error}");
    }
    let error = AllowedNetworks::new(vec![]).check("10.0.0.1".parse().unwrap()).unwrap_err();
    assert!(error.to_string().contains("none"), "{error}");
}

#[test]
fn z05_host_names_are_checked_by_their_addresses() {
    run(async {
        let found = AllowedNetworks::default().resolve("localhost", 80).await.unwrap();
        assert!(!found.is_empty() && found.iter().all(|a| a.ip().is_loopback() && a.port() == 80));
        let elsewhere = AllowedNetworks::parse(["203.0.113.0/24"]).unwrap();
        let error = elsewhere.resolve("localhost", 80).await.unwrap_err();
        assert!(matches!(error, TransportError::AddressNotAllowed { .. }), "{error}");
        assert!(error.to_string().contains("localhost ("), "{error}");
        let default = AllowedNetworks::default();
        assert_eq!(default.resolve("fd00::2", 7).await.unwrap()[0].to_string(), "[fd00::2]:7");
        assert_eq!(default.resolve("[::1]", 7).await.unwrap()[0].to_string(), "[::1]:7");
        let long = "a".repeat(300);
        for host in ["", "a b", "a\nb", &long] {
            let error = default.resolve(host, 1).await.unwrap_err();
            assert!(matches!(error, TransportError::Unreachable { .. }), "{error}");
        }
    });
}

#[test]
fn z01_an_endpoint_is_scheme_host_and_port() {
    let host = |address: &str| Endpoint::parse(address, "tcp").map(|e| (e.host, e.port));
    assert_eq!(host("tcp://p0.example:5000"), Ok(("p0.example".to_owned(), 5000)));
    assert_eq!(host("tcp://[fd00::2]:1"), Ok(("fd00::2".to_owned(), 1)));
    assert_eq!(Endpoint::parse("tcp://[::1]:9", "tcp").unwrap().to_string(), "[::1]:9");
    for bad in [
        "",
        "tcp://",
        "tcp://h",
        "tcp://h:",
        "tcp://:1",
        "tcp://h:0",
        "tcp://h:65536",
        "tcp://h:-1",
        "http://h:1",
        "tcp://h:1/x",
        "tcp://u@h:1",
        "tcp://[h]:1",
        "tcp://[::1:1",
        "tcp://h#:1",
        "tcp://h?:1",
        "tcp://h\r\n:1",
        "tcp:h:1",
    ] {
        assert!(host(bad).is_err(), "{bad:?}");
    }
}
