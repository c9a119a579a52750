//! Measures the TCP data plane between two processes of this machine.
//!
//! `cargo run --release -p kvbaton-transport-tcp --example data_bench [seconds per case]`
//! prints one JSON object a case: median GB/s and processor seconds a GB on both sides, or
//! the latency of one small write in microseconds.

use kvbaton_actors::transport::{DataPlane, GrantedRows, PeerKind, Write, WriteId, WriteOutcome};
use kvbaton_core::ids::{Address, Bytes, Generation, Grant, SessionAddress};
use kvbaton_core::region::{Copy, MemoryRange};
use kvbaton_transport_tcp::data::{DataConfig, TcpDataPlane};
use serde_json::{Value, json};
use std::future::Future;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

const POOL: u64 = 512 << 20;
const RECEIVER: &str = "receiver";

/// One case: blocks of so many bytes, so many of them.
struct Case {
    name: &'static str,
    block: u64,
    count: u64,
}

const CASES: [Case; 6] = [
    Case { name: "512 MiB", block: POOL, count: 1 },
    Case { name: "1000 x 256 KiB", block: 256 << 10, count: 1000 },
    Case { name: "1000 x 64 KiB", block: 64 << 10, count: 1000 },
    Case { name: "1000 x 16 KiB", block: 16 << 10, count: 1000 },
    Case { name: "20000 x 4 KiB", block: 4 << 10, count: 20_000 },
    Case { name: "4 KiB write", block: 4 << 10, count: 1 },
];

fn main() {
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some(RECEIVER) {
        return receive();
    }
    let seconds = argument.map_or(2.0, |text| text.parse().expect("seconds per case"));
    for case in &CASES {
        println!("{}", run(case, Duration::from_secs_f64(seconds)));
    }
}

/// Memory of the pool's size, touched.
fn pool(fill: u8) -> (Vec<u8>, MemoryRange) {
    let mut memory = vec![fill; POOL as usize];
    let start = Address(memory.as_mut_ptr().expose_provenance() as u64);
    (memory, MemoryRange { start, len: Bytes(POOL) })
}

fn config() -> DataConfig {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let mut config = DataConfig::default();
    config.connections_per_peer = number("CONNECTIONS").unwrap_or(config.connections_per_peer);
    config.iovecs_per_call = number("IOVECS").unwrap_or(config.iovecs_per_call);
    config.socket_buffer = number("BUFFER").unwrap_or(config.socket_buffer);
    if let Some(micros) = number("SPIN") {
        config.spin = Duration::from_micros(micros as u64);
    }
    config
}

/// The receiving process: tells where it is, then its processor time for each line it reads.
fn receive() {
    let (_memory, range) = pool(0);
    let plane = TcpDataPlane::open(config()).expect("opens");
    // SAFETY: the memory outlives the plane, and only the plane uses it.
    let generation = unsafe { plane.register(&[range]) }.expect("registers").generation;
    let rows = vec![range];
    let granted = GrantedRows { grant: Grant(1), generation, rows, allow_ungranted: false };
    plane.open_grant(granted).expect("grants");
    let port = plane.session().port;
    println!("{}", json!({"port": port, "generation": generation.0, "start": range.start.0}));
    for _ in std::io::stdin().lock().lines() {
        println!("{}", json!({"cpu": cpu_seconds()}));
    }
}

struct Receiver {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Receiver {
    fn start() -> (Self, Value) {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .arg(RECEIVER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut receiver = Self { child, lines };
        let hello = receiver.line();
        (receiver, hello)
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).expect("JSON")
    }

    fn cpu(&mut self) -> f64 {
        self.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("asks");
        self.line()["cpu"].as_f64().expect("a number")
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("ends");
    }
}

fn run(case: &Case, time: Duration) -> Value {
    let (_memory, range) = pool(1);
    let plane = TcpDataPlane::open(config()).expect("opens");
    // SAFETY: the memory outlives the plane, and only the plane uses it.
    unsafe { plane.register(&[range]) }.expect("registers");
    let (mut receiver, hello) = Receiver::start();
    let number = |name: &str| hello[name].as_u64().expect("a number");
    let session = SessionAddress { host: "127.0.0.1".into(), port: number("port") as u16 };
    let generation = Generation(number("generation"));
    let copies = copies(case, range.start.0, number("start"));
    let write = |id| Write {
        id: WriteId(id),
        session: session.clone(),
        kind: PeerKind::Kvbaton,
        generation: Some(generation),
        grant: Some(Grant(1)),
        keys: Arc::from([]),
        copies: copies.clone(),
        timeout: Duration::from_secs(60),
    };
    for id in 0..3 {
        assert_eq!(block_on(plane.write(write(id))), WriteOutcome::Written);
    }
    let (own_cpu, their_cpu) = (cpu_seconds(), receiver.cpu());
    let begin = Instant::now();
    let mut rounds = Vec::new();
    while begin.elapsed() < time || rounds.len() < 5 {
        let write = write(3 + rounds.len() as u64);
        let start = Instant::now();
        let outcome = block_on(plane.write(write));
        rounds.push(start.elapsed().as_secs_f64());
        assert_eq!(outcome, WriteOutcome::Written);
    }
    let gigabytes = (case.block * case.count * rounds.len() as u64) as f64 / 1e9;
    let own_cpu = (cpu_seconds() - own_cpu) / gigabytes;
    let their_cpu = (receiver.cpu() - their_cpu) / gigabytes;
    rounds.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| rounds[((rounds.len() - 1) as f64 * share) as usize];
    json!({
        "case": case.name,
        "rounds": rounds.len(),
        "gb_per_s": (case.block * case.count) as f64 / 1e9 / at(0.5),
        "p50_us": at(0.5) * 1e6,
        "p99_us": at(0.99) * 1e6,
        "sender_cpu_s_per_gb": own_cpu,
        "receiver_cpu_s_per_gb": their_cpu,
    })
}

/// Blocks scattered over both pools, in orders of their own.
fn copies(case: &Case, source: u64, destination: u64) -> Vec<Copy> {
    let stride = POOL / case.count;
    let order = |mut state: u64| {
        let mut order: Vec<u64> = (0..case.count).collect();
        for index in (1..order.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            order.swap(index, (state >> 33) as usize % (index + 1));
        }
        order
    };
    let at = |base: u64, index: u64| Address(base + index * (stride & !63));
    let pairs = order(1).into_iter().zip(order(2));
    let copy = |(from, to)| Copy {
        source: at(source, from),
        destination: at(destination, to),
        len: Bytes(case.block),
    };
    pairs.map(copy).collect()
}

/// Wakes the thread that waits.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(mut future: impl Future<Output = T> + Unpin) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(value) =
            std::pin::Pin::new(&mut future).poll(&mut Context::from_waker(&waker))
        {
            return value;
        }
        std::thread::park();
    }
}

fn cpu_seconds() -> f64 {
    // SAFETY: all zeroes is a valid `rusage`, and the call fills a live one.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
