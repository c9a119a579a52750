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

fn both(folder: &Path, more: &[&str]) -> Node {
    Node::start("both", &folder.join("kv"), &[&["--serve-bootstrap", "0"][..], more].concat())
}

/// A load whose P is never there.
fn load_for_ever(node: &Node) -> (u16, Value) {
    let bootstrap = node.hello["bootstrap"].as_str().unwrap();
    let load = json!({"request": "d-1", "transfer": "t-9", "engine": "both",
                      "bootstrap": bootstrap, "blocks": [[1]]});
    node.post("/load", json!({"loads": [load]}))
}

#[test]
fn s05_memory_sleeps_and_wakes_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let node = both(folder.path(), &[]);
    let kv = vec![5u8; LAYERS * BLOCKS * BLOCK];
    std::fs::write(folder.path().join("kv"), &kv).unwrap();
    let engine = || node.get("/status")["engine"].clone();
    assert_eq!((&engine()["state"], &engine()["doing"]), (&json!("running"), &Value::Null));
    assert_eq!(engine()["kv_resident_bytes"], kv.len());

    let hold = json!({"request": "p-1", "transfer": "t-1", "blocks": [[1]]});
    assert_eq!(node.post("/hold", hold.clone()).0, 200);
    assert_eq!(node.post("/sleep", json!({"level": 1})), (200, json!({"status": "ok"})));
    assert_eq!(node.get("/events?wait=30")[0]["outcome"], "Reset", "what was held came back");
    assert_eq!(engine()["state"], "asleep_1");
    assert_eq!(engine()["kv_resident_bytes"], 0);
    let (status, text) = node.ask("GET", "/kv?offset=0&len=4", &Value::Null);
    assert_eq!((status, String::from_utf8(text).unwrap().contains("asleep")), (416, true));
    for (path, word) in [("/restore", "asleep"), ("/resume", "wake"), ("/hold", "still")] {
        let body = if path == "/hold" { hold.clone() } else { json!({}) };
        let (status, refused) = node.post(path, body);
        assert_eq!(status, 409, "{path}");
        assert!(refused["error"].as_str().unwrap().contains(word), "{path}: {refused}");
    }
    assert_eq!(node.post("/wake", json!({"parts": "kv"})).0, 200);
    assert_eq!(engine()["state"], "kv_awake");
    assert_eq!(node.post("/wake", json!({})).0, 200);
    assert_eq!(engine()["state"], "running");
    let (status, bytes) = node.ask("GET", "/kv?offset=0&len=4", &Value::Null);
    assert_eq!((status, bytes), (200, vec![0; 4]), "new pages");
    assert_eq!(node.post("/hold", hold).0, 200);
    assert_eq!(node.post("/release", json!({"transfer": "t-1"})).0, 200);

    assert_eq!(node.post("/update-weights", json!({"version": 7})).0, 200);
    assert_eq!(engine()["weights"], 7);
    let (_, metrics) = node.ask("GET", "/metrics", &Value::Null);
    let metrics = String::from_utf8(metrics).unwrap();
    for line in [
        "kvbaton_engine_state{state=\"running\"} 1",
        "kvbaton_engine_state{state=\"asleep_1\"} 0",
        "kvbaton_engine_state_seconds_count{state=\"asleep_1\"} 1",
        "kvbaton_engine_operation_seconds_count{operation=\"sleep\",outcome=\"done\"} 1",
        "kvbaton_held_requests 0",
    ] {
        assert!(metrics.lines().any(|it| it == line), "no {line} in {metrics}");
    }
}

#[test]
fn r05_what_waits_is_named_and_a_resume_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let node = both(folder.path(), &["--patience", "0.3"]);
    assert_eq!(load_for_ever(&node).0, 200);
    let (status, late) = node.post("/pause", json!({"mode": "wait"}));
    assert_eq!((status, &late["kind"]), (504, &json!("timed_out")), "{late}");
    let words = late["error"].as_str().unwrap();
    assert!(words.contains("d-1") && words.contains("both"), "{words}");
    assert_eq!(node.get("/status")["engine"]["state"], "running", "as it was");

    let patient = both(tempfile::tempdir().unwrap().path(), &[]);
    assert_eq!(load_for_ever(&patient).0, 200);
    std::thread::scope(|scope| {
        let pause = scope.spawn(|| patient.post("/pause", json!({"mode": "wait"})));
        let doing = loop {
            let doing = patient.get("/status")["engine"]["doing"].clone();
            if !doing.is_null() {
                break doing;
            }
        };
        assert_eq!(doing["operation"], "pause");
        assert!(doing["waits_for"].to_string().contains("d-1"), "{doing}");
        let (status, busy) = patient.post("/sleep", json!({}));
        assert_eq!((status, &busy["kind"]), (409, &json!("busy")), "{busy}");
        assert_eq!(patient.post("/resume", json!({})).0, 200);
        let (status, ended) = pause.join().unwrap();
        assert_eq!((status, &ended["kind"]), (409, &json!("resumed")), "{ended}");
    });
    let (status, reset) = patient.post("/reset", json!({}));
    assert_eq!((status, &reset["emptied"]), (409, &json!(false)), "{reset}");
    assert!(reset["error"].as_str().unwrap().contains("d-1"), "{reset}");
    assert_eq!(patient.post("/pause", json!({"mode": "abort", "clear": true})).0, 200);
    assert_eq!(patient.get("/events?wait=30")[0]["outcome"], "dropped");
    let (status, refused) = load_for_ever(&patient);
    assert_eq!(status, 409);
    assert!(refused["error"].as_str().unwrap().contains("paused"), "{refused}");
    assert_eq!(patient.post("/reset", json!({"running": true})).1["emptied"], true);
    assert_eq!(patient.post("/pause", json!({"mode": "hold"})).0, 400);
}

#[test]
fn s03_sleep_can_be_switched_off() {
    let folder = tempfile::tempdir().unwrap();
    let node = both(folder.path(), &["--sleep", "false"]);
    let (status, refused) = node.post("/sleep", json!({"level": 1}));
    assert_eq!((status, &refused["kind"]), (409, &json!("not_possible")), "{refused}");
    assert_eq!(node.post("/sleep", json!({"level": 0})).0, 200);
    assert_eq!(node.get("/status")["engine"]["state"], "asleep_0");
}
