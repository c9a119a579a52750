//! The bootstrap server, as stock clients see it: raw HTTP.

use kvbaton_transport_tcp::bootstrap::{BootstrapConfig, BootstrapServer};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Bound on everything that ought to happen; reached only when a test fails.
const BOUND: Duration = Duration::from_secs(30);

fn start() -> BootstrapServer {
    BootstrapServer::start(BootstrapConfig::default()).unwrap()
}

fn connect(server: &BootstrapServer) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    stream
}

fn raw(server: &BootstrapServer, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
    let mut stream = connect(server);
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    // A refused body may be cut short.
    let _ = stream.write_all(&[head.as_bytes(), body].concat());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

fn post(server: &BootstrapServer, body: &Value) -> (u16, Value) {
    raw(server, "POST", "/register", body.to_string().as_bytes())
}

fn query(server: &BootstrapServer) -> Value {
    let (status, answer) = raw(server, "GET", "/query", b"");
    assert_eq!(status, 200);
    answer
}

fn rank(engine: &str, dp: u32, tp: u32, pp: u32, addr: &str) -> Value {
    json!({"engine_id": engine, "dp_rank": dp, "tp_rank": tp, "pp_rank": pp, "addr": addr})
}

fn ok(server: &BootstrapServer, body: &Value) {
    assert_eq!(post(server, body), (200, json!({"status": "ok"})));
}

#[test]
fn w_stock_ranks_are_listed_in_the_stock_shape() {
    let server = start();
    assert_eq!(query(&server), json!({}));
    ok(&server, &rank("e0", 0, 1, 0, "tcp://10.0.0.1:5001"));
    ok(&server, &rank("e0", 0, 0, 1, "tcp://10.0.0.1:5002"));
    ok(&server, &rank("e1", 10, 0, 0, "tcp://[fd00::2]:5003"));
    ok(&server, &rank("e0", 0, 0, 0, "tcp://10.0.0.1:5000"));
    let expected = json!({
        "0": {"engine_id": "e0", "worker_addr": {
            "0": {"0": "tcp://10.0.0.1:5000", "1": "tcp://10.0.0.1:5002"},
            "1": {"0": "tcp://10.0.0.1:5001"}}},
        "10": {"engine_id": "e1", "worker_addr": {"0": {"0": "tcp://[fd00::2]:5003"}}},
    });
    assert_eq!(query(&server), expected);
    assert_eq!(raw(&server, "GET", "/health", b""), (200, json!({"status": "ok"})));
}

#[test]
fn w_our_own_field_rides_beside_the_stock_ones() {
    let server = start();
    let mut ours = rank("e0", 0, 0, 0, "tcp://10.0.0.1:5000");
    let extension = json!({"revision": 1, "features": "0xffffffffffffffff",
        "incarnation": "0x8000000000000001", "fingerprint": "llama \"x\""});
    ours["kvbaton"] = extension.clone();
    ours["of a later revision"] = json!([1, 2]);
    ok(&server, &ours);
    ok(&server, &rank("e0", 0, 1, 0, "tcp://10.0.0.1:5001"));
    let engine = &query(&server)["0"];
    assert_eq!(engine["worker_addr"]["0"]["0"], "tcp://10.0.0.1:5000");
    assert_eq!(engine["kvbaton"], json!({"0": {"0": extension}}));
}

#[test]
fn f63_the_same_registration_again_is_fine() {
    let server = start();
    for _ in 0..3 {
        ok(&server, &rank("e0", 0, 0, 0, "tcp://10.0.0.1:5000"));
    }
    assert_eq!(query(&server)["0"]["worker_addr"], json!({"0": {"0": "tcp://10.0.0.1:5000"}}));
}

#[test]
fn w_a_restarted_rank_replaces_its_predecessor() {
    let server = start();
    ok(&server, &rank("old", 0, 0, 0, "tcp://10.0.0.1:5000"));
    ok(&server, &rank("old", 0, 1, 0, "tcp://10.0.0.1:5001"));
    ok(&server, &rank("other", 1, 0, 0, "tcp://10.0.0.2:5000"));
    // Its address only.
    ok(&server, &rank("old", 0, 1, 0, "tcp://10.0.0.1:6001"));
    assert_eq!(query(&server)["0"]["worker_addr"]["1"]["0"], "tcp://10.0.0.1:6001");
    // The engine: no rank of the dead one lingers, others are left alone.
    ok(&server, &rank("new", 0, 0, 0, "tcp://10.0.0.1:7000"));
    let expected = json!({
        "0": {"engine_id": "new", "worker_addr": {"0": {"0": "tcp://10.0.0.1:7000"}}},
        "1": {"engine_id": "other", "worker_addr": {"0": {"0": "tcp://10.0.0.2:5000"}}},
    });
    assert_eq!(query(&server), expected);
}

#[test]
fn w_unregistering_takes_out_exactly_that_rank() {
    let server = start();
    let first = rank("e0", 0, 0, 0, "tcp://10.0.0.1:5000");
    ok(&server, &first);
    ok(&server, &rank("e0", 0, 1, 0, "tcp://10.0.0.1:5001"));
    let delete = |body: &Value| {
        let (status, answer) = raw(&server, "DELETE", "/register", body.to_string().as_bytes());
        assert_eq!(status, 200);
        answer["found"].clone()
    };
    assert_eq!(delete(&rank("before", 0, 0, 0, "tcp://10.0.0.1:5000")), false);
    assert_eq!(delete(&rank("e0", 0, 0, 0, "tcp://10.0.0.1:4000")), false);
    assert_eq!(delete(&first), true);
    assert_eq!(delete(&first), false);
    assert_eq!(query(&server)["0"]["worker_addr"], json!({"1": {"0": "tcp://10.0.0.1:5001"}}));
    assert_eq!(delete(&rank("e0", 0, 1, 0, "tcp://10.0.0.1:5001")), true);
    assert_eq!(query(&server), json!({}));
}

#[test]
fn z01_what_is_out_of_bounds_is_refused_and_named() {
    let server = start();
    let good = rank("e0", 0, 0, 0, "tcp://10.0.0.1:5000");
    let with = |field: &str, value: Value| {
        let mut body = good.clone();
        body[field] = value;
        body
    };
    let extension = |features: &str, len: usize| {
        json!({"revision": 1, "features": features, "incarnation": "0x1",
            "fingerprint": "x".repeat(len)})
    };
    let cases = [
        (json!({"engine_id": "e0"}), "dp_rank"),
        (json!([1, 2]), ""),
        (with("dp_rank", json!(-1)), "-1"),
        (with("dp_rank", json!(4096)), "dp_rank"),
        (with("tp_rank", json!(u32::MAX)), "tp_rank"),
        (with("pp_rank", json!(1e30)), ""),
        (with("pp_rank", json!("x")), ""),
        (with("engine_id", json!("")), "engine_id"),
        (with("engine_id", json!("e".repeat(257))), "engine_id"),
        (with("addr", json!("10.0.0.1:5000")), "tcp://host:port"),
        (with("addr", json!("tcp://10.0.0.1:0")), "port"),
        (with("addr", json!(format!("tcp://{}:1", "a".repeat(254)))), "host"),
        (with("kvbaton", extension("31", 1)), "0x"),
        (with("kvbaton", extension("0x1ffffffffffffffff", 1)), "0x"),
        (with("kvbaton", extension("0x1", 4097)), "fingerprint"),
    ];
    for (body, named) in cases {
        let (status, answer) = post(&server, &body);
        assert_eq!(status, 422, "{body}");
        let detail = answer["detail"].as_str().unwrap();
        assert!(detail.contains(named), "{detail:?} does not name {named:?}");
    }
    assert_eq!(raw(&server, "POST", "/register", b"{\"engine_id").0, 422);
    assert_eq!(raw(&server, "POST", "/register", b"\xff\xfe").0, 422);
    assert_eq!(raw(&server, "POST", "/register", &b"[".repeat(60_000)).0, 422);
    assert_eq!(raw(&server, "POST", "/register", &b" ".repeat(70_000)).0, 413);
    assert_eq!(raw(&server, "GET", "/register", b"").0, 405);
    assert_eq!(raw(&server, "GET", "/", b"").0, 404);
    assert_eq!(query(&server), json!({}), "nothing of it was kept");
}

#[test]
fn z01_a_full_directory_refuses_more_and_its_answer_stays_readable() {
    let server = start();
    let body = |tp: u32| {
        let mut body = rank(&"e".repeat(256), 0, tp, 0, "tcp://10.0.0.1:5000");
        body["kvbaton"] = json!({"revision": 1, "features": "0x1", "incarnation": "0x1",
            "fingerprint": "\u{1}".repeat(4096)});
        body
    };
    let mut taken = 0;
    let detail = loop {
        match post(&server, &body(taken)) {
            (200, _) => taken += 1,
            (status, answer) => {
                assert_eq!(status, 422);
                break answer["detail"].as_str().unwrap().to_owned();
            }
        }
        assert!(taken < 4096, "the directory has no bound");
    };
    assert!(detail.contains("full"), "{detail}");
    assert!(query(&server).to_string().len() < 4 << 20, "clients read 4 MiB");
    // What is there can still be registered again, and replaced.
    ok(&server, &body(0));
    ok(&server, &rank("new", 0, 0, 0, "tcp://10.0.0.1:5000"));
    ok(&server, &rank("new", 0, 1, 0, "tcp://10.0.0.1:5001"));
}

#[test]
fn z03_silent_clients_delay_nobody_and_end() {
    let config = BootstrapConfig {
        max_connections: 8,
        connection_lifetime: Duration::from_millis(200),
        ..BootstrapConfig::default()
    };
    let server = BootstrapServer::start(config).unwrap();
    let mut silent: Vec<_> = (0..40).map(|_| connect(&server)).collect();
    for stream in &mut silent {
        // The oldest may be closed already.
        let _ = stream.write_all(b"POST /register HTTP/1.1\r\ncontent-le");
    }
    ok(&server, &rank("e0", 0, 0, 0, "tcp://10.0.0.1:5000"));
    for mut stream in silent {
        // Closed, with or without a word: at the latest when its time is up.
        let mut rest = Vec::new();
        match stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
}

#[test]
fn the_server_stops_when_dropped_and_its_port_is_free_again() {
    let server = start();
    let mut open = connect(&server);
    let address = server.address();
    drop(server);
    assert!(TcpStream::connect(address).is_err());
    let mut rest = Vec::new();
    // Its connections end with it, by a close or a reset.
    let _ = open.read_to_end(&mut rest);
    assert!(rest.is_empty());
    let again = BootstrapConfig { port: address.port(), ..BootstrapConfig::default() };
    let taken = BootstrapServer::start(again.clone()).unwrap();
    let error = BootstrapServer::start(again).err().unwrap().to_string();
    assert!(error.contains(&address.port().to_string()), "{error}");
    drop(taken);
}

#[test]
fn ipv6_works() {
    let config = BootstrapConfig { host: "::1".to_owned(), ..BootstrapConfig::default() };
    let server = BootstrapServer::start(config).unwrap();
    assert!(server.url().starts_with("http://[::1]:"));
    ok(&server, &rank("e0", 0, 0, 0, "tcp://[::1]:5000"));
}
