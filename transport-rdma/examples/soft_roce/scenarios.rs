//! The sending process: scenarios against a target in another process or machine.

use crate::target::{MEMORY, pattern};
use kvbaton_actors::transport::{Rejection, TransportError, Write, WriteOutcome};
use kvbaton_core::ids::{Address, Generation, Grant, SessionAddress};
use kvbaton_core::region::Copy;
use kvbaton_data_conformance::{Node, block_on, copy};
use kvbaton_transport_rdma::{RdmaConfig, RdmaDataPlane};
use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

type Checked = Result<String, String>;

/// Where the target's memory is.
struct Place {
    session: SessionAddress,
    generation: Generation,
    start: u64,
    keys: Vec<u8>,
}

struct Sender {
    node: Node,
    told: TcpStream,
    answers: BufReader<TcpStream>,
    place: Place,
    next_grant: u64,
}

/// Runs scenarios in order; true if all are fine.
pub fn run(config: RdmaConfig, target: (&str, &str), names: &[&str]) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    let told = loop {
        match TcpStream::connect(format!("{}:{}", target.0, target.1)) {
            Ok(stream) => break stream,
            Err(error) if Instant::now() > deadline => panic!("no target: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    let answers = BufReader::new(told.try_clone().expect("clones"));
    let plane = RdmaDataPlane::open(config).expect("opens");
    let node = Node::of(plane, MEMORY as usize, 1);
    let place =
        Place { session: session("", 0), generation: Generation(0), start: 0, keys: Vec::new() };
    let mut sender = Sender { node, told, answers, place, next_grant: 1 };
    let place = sender.ask("where");
    sender.place = parse(&place);
    let mut fine = true;
    for name in names {
        let begin = Instant::now();
        let checked = match *name {
            "blocks" => sender.blocks(20_000, 1024),
            "lossy" => sender.lossy(),
            "stale" => sender.stale(),
            "unregister" => sender.unregister(),
            "revoke" => sender.revoke(),
            "port" => sender.port(),
            "stopped" => sender.stopped(),
            "killed" => sender.killed(),
            "figures" => sender.figures(),
            other => Err(format!("no scenario {other}")),
        };
        fine &= checked.is_ok();
        let took = begin.elapsed().as_millis();
        match checked {
            Ok(what) => println!("scenario {name}: ok, {what} ({took} ms)"),
            Err(what) => println!("scenario {name}: FAILED, {what} ({took} ms)"),
        }
    }
    fine
}

fn session(host: &str, port: u16) -> SessionAddress {
    SessionAddress { host: host.into(), port }
}

/// Whether every thread of a process is stopped.
fn stands_still(pid: i32) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    tasks.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The state follows the name, which is in parentheses.
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    })
}

fn parse(line: &str) -> Place {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [host, port, generation, start, keys] = words[..] else { panic!("what is {line}?") };
    let byte = |at: usize| u8::from_str_radix(&keys[at..at + 2], 16).expect("a byte");
    Place {
        session: session(host, port.parse().expect("a port")),
        generation: Generation(generation.parse().expect("a generation")),
        start: start.parse().expect("an address"),
        keys: (0..keys.len()).step_by(2).map(byte).collect(),
    }
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, got: T, wanted: T) -> Result<(), String> {
    if got == wanted { Ok(()) } else { Err(format!("{what}: {got:?} instead of {wanted:?}")) }
}

impl Sender {
    fn tell(&mut self, line: &str) {
        writeln!(self.told, "{line}").expect("the target listens");
    }

    fn hear(&mut self) -> String {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("the target answers");
        answer.trim().into()
    }

    fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }

    fn grant(&mut self, len: u64) -> Grant {
        self.next_grant += 1;
        let answer = self.ask(&format!("grant {} 0 {len}", self.next_grant));
        assert_eq!(answer, "ok");
        Grant(self.next_grant)
    }

    fn to(&self, offset: u64) -> Address {
        Address(self.place.start + offset)
    }

    fn write(&self, grant: Grant, copies: Vec<Copy>) -> Write {
        let place = &self.place;
        let (generation, keys) = (Some(place.generation), place.keys.clone());
        self.node.write(place.session.clone(), generation, Some(grant), keys, copies)
    }

    fn whole(&self, grant: Grant, len: u64) -> Write {
        self.write(grant, vec![copy(self.node.at(0), self.to(0), len)])
    }

    /// Scattered blocks in one batch.
    fn blocks(&mut self, count: u64, block: u64) -> Checked {
        let seed = self.next_grant;
        self.node.fill_with(|offset| pattern(seed, offset as u64));
        self.ask("fill 0");
        let grant = self.grant(count * block);
        let copies =
            (0..count).rev().map(|at| copy(self.node.at(at * block), self.to(at * block), block));
        let write = self.write(grant, copies.collect());
        let begin = Instant::now();
        expect("outcome", self.node.run(write), WriteOutcome::Written)?;
        let took = begin.elapsed();
        expect("bytes", self.ask(&format!("same {seed} {}", count * block)), "true".into())?;
        let answer = self.ask(&format!("revoke {}", grant.0));
        expect("revoked", answer, format!("true {}", count * block))?;
        let rate = (count * block) as f64 / took.as_secs_f64() / 1e6;
        Ok(format!("{count} blocks of {block} bytes, {rate:.0} MB/s"))
    }

    /// A key of before a sleep is refused before anything is written; the new one works.
    fn stale(&mut self) -> Checked {
        let grant = self.grant(4096);
        let write = self.whole(grant, 4096);
        expect("before", self.node.run(write.clone()), WriteOutcome::Written)?;
        self.place = parse(&self.ask("again"));
        self.ask("fill 7");
        let stale = WriteOutcome::Rejected(Rejection::StaleGeneration);
        expect("stale", self.node.run(write), stale)?;
        expect("untouched", self.ask("all 7 4096"), "true".into())?;
        let grant = self.grant(4096);
        let begin = Instant::now();
        expect("after", self.node.run(self.whole(grant, 4096)), WriteOutcome::Written)?;
        Ok(format!("first write after the wake took {} ms", begin.elapsed().as_millis()))
    }

    /// Nothing lands once unregister returned, though writes were in flight.
    fn unregister(&mut self) -> Checked {
        const LEN: u64 = 16 << 20;
        self.node.fill_with(|_| 1);
        let mut ends = [0; 2];
        for round in 0..4 {
            let grant = self.grant(LEN);
            let future = self.node.plane.write(self.whole(grant, LEN));
            std::thread::sleep(Duration::from_millis(5 * round));
            expect("unregistered", self.ask("unregister"), "ok".into())?;
            self.ask("fill 7");
            let outcome = block_on(future);
            match outcome {
                WriteOutcome::Written => ends[0] += 1,
                WriteOutcome::Rejected(Rejection::StaleGeneration) => ends[1] += 1,
                other => return Err(format!("{other:?}")),
            }
            expect("untouched", self.ask(&format!("all 7 {LEN}")), "true".into())?;
            self.place = parse(&self.ask("again"));
        }
        Ok(format!("{} written before, {} cut off", ends[0], ends[1]))
    }

    /// Nothing lands under a grant once its revoke returned.
    fn revoke(&mut self) -> Checked {
        const LEN: u64 = 16 << 20;
        self.node.fill_with(|_| 1);
        let mut ends = [0; 2];
        for round in 0..4 {
            let grant = self.grant(LEN);
            let future = self.node.plane.write(self.whole(grant, LEN));
            std::thread::sleep(Duration::from_millis(5 * round));
            let revoked = self.ask(&format!("revoke {}", grant.0));
            if !revoked.starts_with("true") {
                return Err(format!("revoked: {revoked}"));
            }
            self.ask("fill 7");
            match block_on(future) {
                WriteOutcome::Written => ends[0] += 1,
                WriteOutcome::Rejected(Rejection::UnknownGrant) => ends[1] += 1,
                other => return Err(format!("{other:?}")),
            }
            expect("untouched", self.ask(&format!("all 7 {LEN}")), "true".into())?;
        }
        Ok(format!("{} written before, {} cut off", ends[0], ends[1]))
    }

    /// The port goes down and comes back while a write is under way.
    fn port(&mut self) -> Checked {
        let device = std::env::var("NETDEV").unwrap_or_else(|_| "dummy0".into());
        let link = |state: &str| {
            let done = Command::new("/bin/ip").args(["link", "set", &device, state]).status();
            done.is_ok_and(|it| it.success())
        };
        self.node.fill_with(|offset| pattern(99, offset as u64));
        let grant = self.grant(MEMORY);
        let future = self.node.plane.write(self.whole(grant, MEMORY));
        if !link("down") {
            return Err("the link cannot be taken down".into());
        }
        std::thread::sleep(Duration::from_millis(300));
        if !link("up") {
            return Err("the link cannot be brought up".into());
        }
        let first = block_on(future);
        expect("during", first, WriteOutcome::Written)?;
        expect("bytes", self.ask(&format!("same 99 {MEMORY}")), "true".into())?;
        expect("after", self.node.run(self.whole(grant, 4096)), WriteOutcome::Written)?;
        Ok("down for 300 ms".into())
    }

    /// One packet in a hundred is lost, in this direction.
    fn lossy(&mut self) -> Checked {
        let device = std::env::var("NETDEV").unwrap_or_else(|_| "eth0".into());
        let rule = |verb: &str, more: &[&str]| {
            let fixed = ["qdisc", verb, "dev", &device, "root"];
            let done = Command::new("/bin/tc").args(fixed).args(more).status();
            done.is_ok_and(|it| it.success())
        };
        if !rule("add", &["netem", "loss", "1%"]) {
            return Err("netem cannot be set up".into());
        }
        let checked = self.blocks(3000, 1024);
        if !rule("del", &[]) {
            return Err("netem cannot be taken away".into());
        }
        checked
    }

    fn signal(&mut self, signal: i32) -> Result<(), String> {
        let pid: i32 = self.ask("pid").parse().map_err(|_| "no pid")?;
        // SAFETY: a plain call.
        let sent = unsafe { libc::kill(pid, signal) };
        expect("kill", sent, 0)
    }

    /// A target that stands still is given up within the bound, and found again later.
    fn stopped(&mut self) -> Checked {
        let pid: i32 = self.ask("pid").parse().map_err(|_| "no pid")?;
        let grant = self.grant(4096);
        expect("before", self.node.run(self.whole(grant, 4096)), WriteOutcome::Written)?;
        // SAFETY: a plain call.
        expect("stopped", unsafe { libc::kill(pid, libc::SIGSTOP) }, 0)?;
        // The signal takes effect a moment later, thread by thread.
        let deadline = Instant::now() + Duration::from_secs(10);
        while !stands_still(pid) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let begin = Instant::now();
        let mut write = self.whole(grant, 4096);
        write.timeout = Duration::from_secs(20);
        let outcome = self.node.run(write);
        let took = begin.elapsed();
        // SAFETY: a plain call.
        expect("goes on", unsafe { libc::kill(pid, libc::SIGCONT) }, 0)?;
        match outcome {
            WriteOutcome::Failed { error: TransportError::TimedOut { .. }, .. } => {}
            other => return Err(format!("{other:?}")),
        }
        expect("after", self.node.run(self.whole(grant, 4096)), WriteOutcome::Written)?;
        Ok(format!("given up after {} ms", took.as_millis()))
    }

    /// A target that is killed is noticed at once.
    fn killed(&mut self) -> Checked {
        let grant = self.grant(MEMORY);
        let future = self.node.plane.write(self.whole(grant, MEMORY));
        self.signal(libc::SIGKILL)?;
        let begin = Instant::now();
        match block_on(future) {
            WriteOutcome::Failed { .. } => {}
            WriteOutcome::Written => return Ok("it was written before".into()),
            other @ WriteOutcome::Rejected(_) => return Err(format!("{other:?}")),
        }
        Ok(format!("noticed after {} ms", begin.elapsed().as_millis()))
    }

    /// Bandwidth and latency, to be held against perftest's.
    fn figures(&mut self) -> Checked {
        let grant = self.grant(MEMORY);
        let mut told = Vec::new();
        for (name, size, count) in [
            ("64 KiB", 64 << 10, 256_u64),
            ("1 MiB", 1 << 20, 16),
            ("1000 x 16 KiB", 16 << 10, 1000),
        ] {
            let at = |index: u64| index * 7 % count * size;
            let copies = (0..count).map(|it| copy(self.node.at(at(it)), self.to(at(it)), size));
            let write = self.write(grant, copies.collect());
            let mut best = Duration::MAX;
            for _ in 0..5 {
                let mut write = write.clone();
                write.id.0 += 1 << 40;
                let begin = Instant::now();
                expect(name, self.node.run(write), WriteOutcome::Written)?;
                best = best.min(begin.elapsed());
            }
            let rate = (size * count) as f64 / best.as_secs_f64() / 1e6;
            told.push(format!("{name}: {rate:.1} MB/s"));
        }
        let mut times = Vec::new();
        for _ in 0..200 {
            let begin = Instant::now();
            expect("8 bytes", self.node.run(self.whole(grant, 8)), WriteOutcome::Written)?;
            times.push(begin.elapsed());
        }
        times.sort_unstable();
        told.push(format!("8 bytes: {:.1} us", times[100].as_secs_f64() * 1e6));
        Ok(told.join(", "))
    }
}
