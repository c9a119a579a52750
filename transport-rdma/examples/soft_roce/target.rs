//! The receiving process: does what a sender tells it over a line protocol.

use kvbaton_core::ids::Grant;
use kvbaton_data_conformance::{Node, block_on};
use kvbaton_transport_rdma::{RdmaConfig, RdmaDataPlane};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

/// Bytes of its memory.
pub const MEMORY: u64 = 24 << 20;

/// The byte that a sender puts at an offset.
pub fn pattern(seed: u64, offset: u64) -> u8 {
    let mixed = (offset ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

/// Serves one sender until it goes; true if all went well.
pub fn run(config: RdmaConfig, port: &str) -> bool {
    let host = config.bind_host.clone();
    let listener = TcpListener::bind(format!("{host}:{port}")).expect("binds");
    let plane = RdmaDataPlane::open(config).expect("opens");
    let mut node = Node::of(plane, MEMORY as usize, 0);
    println!("target: ready");
    let (stream, _) = listener.accept().expect("accepts");
    let mut answers = stream.try_clone().expect("clones");
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = answer(&mut node, &words);
        if writeln!(answers, "{answer}").is_err() {
            break;
        }
    }
    true
}

fn answer(node: &mut Node, words: &[&str]) -> String {
    let number = |at: usize| words.get(at).and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
    match words.first().copied().unwrap_or_default() {
        "where" => place(node),
        "pid" => std::process::id().to_string(),
        "grant" => {
            node.grant(number(1), number(2), number(3));
            "ok".into()
        }
        "revoke" => {
            let revoked = block_on(node.plane.revoke(Grant(number(1))));
            format!("{} {}", revoked.was_live, revoked.bytes_landed)
        }
        "unregister" => {
            let generation = node.registration.generation;
            block_on(node.plane.unregister(generation)).expect("unregisters");
            "ok".into()
        }
        "again" => {
            node.register_again();
            place(node)
        }
        "fill" => {
            node.fill_with(|_| number(1) as u8);
            "ok".into()
        }
        "all" => {
            let bytes = node.read();
            let len = number(2) as usize;
            bytes[..len].iter().all(|byte| *byte == number(1) as u8).to_string()
        }
        "same" => {
            let (seed, len) = (number(1), number(2));
            let bytes = node.read();
            let wrong = (0..len).find(|at| bytes[*at as usize] != pattern(seed, *at));
            wrong.map_or_else(|| "true".into(), |at| format!("false at {at}"))
        }
        other => format!("what is {other}?"),
    }
}

fn place(node: &Node) -> String {
    let (session, registration) = (node.plane.session(), &node.registration);
    let mut keys = String::new();
    for byte in &registration.keys {
        write!(keys, "{byte:02x}").expect("a string takes all");
    }
    let start = node.range.start.0;
    format!("{} {} {} {start} {keys}", session.host, session.port, registration.generation.0)
}
