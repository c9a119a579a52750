//! Two `kvbaton serve` processes, driven over HTTP, move KV between two files.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const BLOCK: usize = 4096;
const BLOCKS: usize = 32;
const LAYERS: usize = 2;

struct Node {
    process: Child,
    hello: Value,
}

impl Node {
    fn start(role: &str, kv: &Path, bootstrap: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_kvbaton"))
            .args(["serve", "--json", "--engine-id", role, "--role", role, "--kv"])
            .arg(kv)
            .args(["--layers", &LAYERS.to_string(), "--blocks", &BLOCKS.to_string()])
            .args(["--block-bytes", &BLOCK.to_string()])
            .args(bootstrap)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let hello = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{role} said {line:?}"));
        Self { process, hello }
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Vec<u8>) {
        let address = self.hello["http"].as_str().unwrap().trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).unwrap();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let head = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4;
        let status = std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap();
        (status, answer[head..].to_vec())
    }

    fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let (status, answer) = self.ask("POST", path, &body);
        (status, serde_json::from_slice(&answer).unwrap_or(Value::Null))
    }

    fn get(&self, path: &str) -> Value {
        let (status, answer) = self.ask("GET", path, &Value::Null);
        assert_eq!(status, 200, "{path}");
        serde_json::from_slice(&answer).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn kv_moves_between_the_files_of_two_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("p"), folder.path().join("d"));
    let kv: Vec<u8> = (0..LAYERS * BLOCKS * BLOCK).map(|at| (at / 5) as u8 | 1).collect();
    std::fs::write(&source, &kv).unwrap();
    let prefill = Node::start("prefill", &source, &["--serve-bootstrap", "0"]);
    let decode = Node::start("decode", &target, &[]);
    let bootstrap = prefill.hello["bootstrap"].as_str().unwrap();

    let hold = json!({"request": "p-1", "transfer": "t-1", "blocks": [[3, 4, 9]]});
    assert_eq!(prefill.post("/hold", hold.clone()).0, 200);
    let (status, twice) = prefill.post("/hold", hold);
    assert_eq!(status, 409);
    assert!(twice["error"].as_str().unwrap().contains("t-1"), "{twice}");
    assert_eq!(prefill.get("/status")["held"], 1);

    let load = json!({"request": "d-1", "transfer": "t-1", "engine": "prefill",
                      "bootstrap": bootstrap, "blocks": [[20, 7, 8]]});
    let (status, taken) = decode.post("/load", json!({"loads": [load]}));
    assert_eq!(status, 200, "{taken}");
    assert_eq!(decode.get("/events?wait=30")[0]["outcome"], "loaded");
    assert_eq!(prefill.get("/events?wait=30")[0]["outcome"], "sent");

    let there = std::fs::read(&target).unwrap();
    for (from, to) in [(3, 20), (4, 7), (9, 8)] {
        for layer in 0..LAYERS {
            let at = |block: usize| (layer * BLOCKS + block) * BLOCK;
            assert_eq!(there[at(to)..at(to) + BLOCK], kv[at(from)..at(from) + BLOCK]);
        }
    }
    let path = format!("/kv?offset={}&len={BLOCK}", 20 * BLOCK);
    let (status, bytes) = decode.ask("GET", &path, &Value::Null);
    assert_eq!((status, &bytes[..]), (200, &kv[3 * BLOCK..4 * BLOCK]));
    let (_, metrics) = decode.ask("GET", "/metrics", &Value::Null);
    let metrics = String::from_utf8(metrics).unwrap();
    assert!(metrics.contains("kvbaton_loads_total{outcome=\"loaded\"} 1"), "{metrics}");
    assert!(metrics.contains("kvbaton_load_seconds_bucket"), "{metrics}");
}

#[test]
fn a_node_is_unregistered_and_restored_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start("both", &folder.path().join("kv"), &["--serve-bootstrap", "0"]);
    assert_eq!(node.post("/unregister", json!({})).0, 200);
    let load = json!({"request": "d-1", "transfer": "t-1", "engine": "both",
                      "bootstrap": "http://127.0.0.1:1", "blocks": [[1]]});
    let (status, refused) = node.post("/load", json!({"loads": [load]}));
    assert_eq!(status, 409);
    assert!(refused["refused"][0].as_str().unwrap().contains("no KV memory"), "{refused}");
    assert_eq!(node.post("/restore", json!({})).0, 200);
    let hold = json!({"request": "p-1", "transfer": "t-1", "blocks": [[1]]});
    assert_eq!(node.post("/hold", hold).0, 200);
    assert_eq!(node.post("/release", json!({"transfer": "t-1"})).0, 200);
    assert_eq!(node.get("/events?wait=30")[0]["outcome"], "Released");
}
