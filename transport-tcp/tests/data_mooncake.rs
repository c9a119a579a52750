//! Mooncake's protocols in both directions, against peers made by hand.

mod data_kit;

use data_kit::{Node, PATIENCE, block_on, copy, dial};
use kvbaton_actors::transport::{DataPlane, PeerKind, Rejection, Write, WriteOutcome};
use kvbaton_core::ids::{Address, Bytes, SessionAddress};
use kvbaton_core::region::Copy;
use kvbaton_transport_tcp::data::DataConfig;
use serde_json::{Value, json};
use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

const STATUS: u64 = 0x4D43_5456 << 32;

fn control(port: u16, kind: u8, body: &Value) -> (u8, Value) {
    let mut stream = dial(port);
    stream.write_all(&frame(kind, body)).expect("sends");
    let answer = read_frame(&mut stream);
    assert_eq!(stream.read(&mut [0]).expect("the end of the answer"), 0);
    answer
}

fn frame(kind: u8, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let mut frame = (body.len() as u64 + 1).to_le_bytes().to_vec();
    frame.push(kind);
    frame.extend(body.as_bytes());
    frame
}

fn read_frame(stream: &mut TcpStream) -> (u8, Value) {
    let mut len = [0; 8];
    stream.read_exact(&mut len).expect("a length");
    let mut frame = vec![0; u64::from_le_bytes(len) as usize];
    stream.read_exact(&mut frame).expect("a frame");
    (frame[0], serde_json::from_slice(&frame[1..]).expect("JSON"))
}

fn request(operation: u8, address: Address, len: u64) -> Vec<u8> {
    let mut header = len.to_le_bytes().to_vec();
    header.extend(address.0.to_le_bytes());
    header.extend([operation, 0, 0, 0, 0, 0, 0, 0]);
    header
}

fn status(stream: &mut TcpStream) -> u64 {
    let mut status = [0; 8];
    stream.read_exact(&mut status).expect("a status");
    u64::from_le_bytes(status)
}

fn is_closed(stream: &mut TcpStream) -> bool {
    stream.read(&mut [0]).is_ok_and(|got| got == 0)
}

#[test]
fn a_stock_peer_gets_a_descriptor_and_polite_answers() {
    let d = Node::new(4096, 0);
    let port = d.plane.session().port;
    let (kind, descriptor) = control(port, 1, &json!({}));
    assert_eq!(kind, 1);
    assert_eq!(descriptor["name"], d.plane.session().to_string());
    assert_eq!(descriptor["protocol"], "tcp");
    assert_eq!(descriptor["tcp_proto_version"], 2);
    assert_eq!(descriptor["tcp_data_port"], d.plane.mooncake_port().expect("is on"));
    assert_eq!(descriptor["buffers"][0]["addr"], d.range.start.0);
    assert_eq!(descriptor["buffers"][0]["length"], 4096);
    assert_eq!(control(port, 3, &json!({})), (3, json!({"status": "success"})));
    let notify = json!({"name": "n", "notify_msg": "hello"});
    let success = json!({"name": "", "notify_msg": "success"});
    assert_eq!(control(port, 2, &notify), (2, success));
    let (kind, refusal) = control(port, 0, &json!({"qp_num": [1, 2]}));
    assert_eq!(kind, 0);
    assert!(refusal["reply_msg"].as_str().is_some_and(|text| text.contains("TCP")));
}

#[test]
fn z02_a_stock_write_lands_only_in_rows_of_a_grant_that_allows_it() {
    let d = Node::new(4096, 0);
    d.grant_rows(1, &[(0, 64), (128, 64)], true);
    d.grant_rows(2, &[(256, 64)], false);
    let connect = || dial(d.plane.mooncake_port().expect("is on"));
    let mut client = connect();
    // Two in a row without waiting, as stock peers may.
    let both = [request(0x81, d.at(0), 64), vec![1; 64], request(0x81, d.at(128), 1), vec![2]];
    client.write_all(&both.concat()).expect("sends");
    assert_eq!((status(&mut client), status(&mut client)), (STATUS, STATUS));
    let expected = [vec![1; 64], vec![0; 64], vec![2], vec![0; 4096 - 129]].concat();
    assert_eq!(d.read(), expected);
    let outside = [
        request(0x81, d.at(60), 8),
        request(0x81, d.at(256), 8),
        request(0x81, d.at(0), 0),
        request(0x81, Address(8), 8),
        request(0x81, Address(u64::MAX - 3), 8),
        request(0x80, d.at(0), 8),
    ];
    for header in outside {
        let mut client = connect();
        client.write_all(&header).expect("sends");
        assert_eq!(status(&mut client), STATUS | 1);
        assert!(is_closed(&mut client));
    }
    let mut reader = connect();
    reader.write_all(&request(0, d.at(0), 8)).expect("sends");
    assert!(is_closed(&mut reader), "version 1 has no status to refuse with");
    assert_eq!(d.read(), expected);
    let counters = d.plane.counters();
    assert_eq!((counters.refused_range, counters.refused_grant), (5, 2));
}

#[test]
fn g02_a_stock_write_ends_with_its_grant() {
    let d = Node::new(4096, 0);
    let grant = d.grant_rows(1, &[(0, 4096)], true);
    let mut client = dial(d.plane.mooncake_port().expect("is on"));
    client.write_all(&request(0x81, d.at(0), 4096)).expect("sends");
    client.write_all(&[1; 2048]).expect("sends");
    d.wait_for(|counters| counters.bytes_received == Bytes(2048));
    assert_eq!(block_on(d.plane.revoke(grant)).bytes_landed, 2048);
    d.fill_with(|_| 7);
    client.write_all(&[1; 2048]).expect("sends");
    assert_eq!(status(&mut client), STATUS | 1);
    assert_eq!(d.read(), vec![7; 4096]);
}

#[test]
fn z02_without_stock_peers_nothing_of_mooncake_is_served() {
    let config = DataConfig { allow_stock_peers: false, ..DataConfig::default() };
    let d = Node::with(config, 4096, 0);
    assert_eq!(d.plane.mooncake_port(), None);
    let mut client = dial(d.plane.session().port);
    client.write_all(&8_u64.to_le_bytes()).expect("sends");
    assert!(is_closed(&mut client));
    d.wait_for(|counters| counters.refused_connections == 1);
}

/// A stock peer made by hand. Its memory starts at an address of its own.
struct Stock {
    session: SessionAddress,
    state: Arc<StockState>,
}

#[derive(Default)]
struct StockState {
    memory: Mutex<Vec<u8>>,
    fetches: AtomicUsize,
    writes: AtomicUsize,
    /// Requests that are still to be refused.
    refusals: AtomicUsize,
}

const BASE: u64 = 0x5000_0000;

impl Stock {
    fn new(len: usize, version: Option<u32>, refusals: usize) -> Self {
        let state = Arc::new(StockState {
            memory: Mutex::new(vec![0; len]),
            refusals: AtomicUsize::new(refusals),
            ..StockState::default()
        });
        let bind = || TcpListener::bind("127.0.0.1:0").expect("binds");
        let (control, data) = (bind(), bind());
        let port = control.local_addr().expect("bound").port();
        let data_port = data.local_addr().expect("bound").port();
        let mut descriptor = json!({
            "name": "stock", "protocol": "tcp", "tcp_data_port": data_port,
            "buffers": [{"name": "stock", "addr": BASE, "length": len}],
        });
        if let Some(version) = version {
            descriptor["tcp_proto_version"] = version.into();
        }
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in control.incoming() {
                let mut stream = stream.expect("accepts");
                assert_eq!(read_frame(&mut stream).0, 1);
                shared.fetches.fetch_add(1, SeqCst);
                stream.write_all(&frame(1, &descriptor)).expect("sends");
            }
        });
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in data.incoming() {
                let (stream, shared) = (stream.expect("accepts"), shared.clone());
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        Self { session: SessionAddress { host: "127.0.0.1".into(), port }, state }
    }

    fn write(&self, p: &Node, copies: Vec<Copy>) -> WriteOutcome {
        let write = p.write(self.session.clone(), None, None, copies);
        p.run(Write { kind: PeerKind::Mooncake, timeout: PATIENCE, ..write })
    }

    fn memory(&self) -> Vec<u8> {
        self.state.memory.lock().expect("whole").clone()
    }
}

impl StockState {
    fn serve(&self, mut stream: TcpStream) {
        let mut header = [0; 24];
        while stream.read_exact(&mut header).is_ok() {
            let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8"));
            let (len, at) = (word(0) as usize, (word(8) - BASE) as usize);
            let statuses = header[16] & 0x80 != 0;
            if self.refusals.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                // Closing with unread bytes would reset the connection, status and all.
                stream.read_exact(&mut vec![0; len]).expect("a payload");
                stream.write_all(&(STATUS | 1).to_le_bytes()).expect("sends");
                return;
            }
            if header[16] & 1 == 0 {
                let memory = self.memory.lock().expect("whole");
                stream.write_all(&memory[at..at + len]).expect("sends");
                continue;
            }
            let mut payload = vec![0; len];
            if stream.read_exact(&mut payload).is_err() {
                return;
            }
            self.memory.lock().expect("whole")[at..at + len].copy_from_slice(&payload);
            self.writes.fetch_add(1, SeqCst);
            if statuses {
                stream.write_all(&STATUS.to_le_bytes()).expect("sends");
            }
        }
    }
}

/// Every second block of `block` bytes, in reverse.
fn scattered(p: &Node, block: u64, count: u64) -> Vec<Copy> {
    let copy = |b| copy(p.at(b * block), Address(BASE + (count - 1 - b) * 2 * block), block);
    (0..count).map(copy).collect()
}

#[test]
fn f74_a_batch_that_stock_initiators_cannot_send_reaches_both_versions() {
    for version in [None, Some(1), Some(2)] {
        let (block, count) = (512, 5000);
        let p = Node::new((block * count) as usize, 0);
        p.fill_with(|offset| (offset / 512) as u8 | 1);
        let stock = Stock::new((block * count * 2) as usize, version, 0);
        assert_eq!(stock.write(&p, scattered(&p, block, count)), WriteOutcome::Written);
        let (source, landed) = (p.read(), stock.memory());
        for b in 0..count {
            let (from, to) = ((b * block) as usize, ((count - 1 - b) * 2 * block) as usize);
            assert!(source[from..][..512] == landed[to..][..512], "{version:?}: block {b}");
            assert!(landed[to + 512..][..512].iter().all(|byte| *byte == 0));
        }
        assert_eq!(stock.write(&p, scattered(&p, block, 8)), WriteOutcome::Written);
        assert_eq!(stock.state.fetches.load(SeqCst), 1, "the descriptor is kept");
    }
}

#[test]
fn s04_a_refusal_makes_the_descriptor_be_fetched_again_and_the_write_retried_once() {
    let p = Node::new(4096, 1);
    let once = Stock::new(4096, Some(2), 1);
    let copies = || vec![copy(p.at(0), Address(BASE), 4096)];
    assert_eq!(once.write(&p, copies()), WriteOutcome::Written);
    assert_eq!(once.state.fetches.load(SeqCst), 2);
    assert_eq!(once.memory(), vec![1; 4096]);
    let always = Stock::new(4096, Some(2), usize::MAX);
    let refused = WriteOutcome::Rejected(Rejection::OutsideMemory);
    assert_eq!(always.write(&p, copies()), refused);
    assert_eq!(always.state.fetches.load(SeqCst), 2);
    assert_eq!(always.memory(), vec![0; 4096]);
}

#[test]
fn a_destination_outside_the_stock_peers_buffers_is_not_sent() {
    let p = Node::new(4096, 1);
    let stock = Stock::new(4096, Some(2), 0);
    let outcome = stock.write(&p, vec![copy(p.at(0), Address(BASE + 1), 4096)]);
    assert_eq!(outcome, WriteOutcome::Rejected(Rejection::OutsideMemory));
    assert_eq!(stock.state.writes.load(SeqCst), 0);
}

#[test]
fn two_nodes_of_ours_understand_each_other_as_stock_peers() {
    let (p, d) = (Node::new(1 << 20, 3), Node::new(1 << 20, 0));
    d.grant_rows(1, &[(0, 1 << 20)], true);
    let copies = (0..256).map(|b| copy(p.at(b * 4096), d.at(b * 4096), 4096)).collect();
    let write = p.write(d.plane.session(), None, None, copies);
    let outcome = p.run(Write { kind: PeerKind::Mooncake, ..write });
    assert_eq!(outcome, WriteOutcome::Written);
    assert!(d.read() == p.read());
}
