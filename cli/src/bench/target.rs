//! The receiving process of `bench data`: memory that is written into.

use super::cpu;
use super::lanes;
use anyhow::{Context, Result};
use clap::Args;
use kvbaton_actors::transport::{DataPlane, GrantedRows};
use kvbaton_core::ids::{Address, Bytes, Grant};
use kvbaton_core::region::MemoryRange;
use kvbaton_transport_tcp::data::{DataConfig, TcpDataPlane};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Bytes of memory on either side.
pub(super) const POOL: u64 = 512 << 20;
/// The grant that the bench writes under.
pub(super) const GRANT: Grant = Grant(1);
/// Name of the hidden command.
const COMMAND: &str = "bench-target";

/// Arguments of the hidden command.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// Receive plain byte streams over so many connections instead: the baseline.
    #[arg(long)]
    lanes: Option<usize>,
    #[command(flatten)]
    pattern: lanes::Pattern,
}

/// Runs the receiving process: says where it is, then answers each line with its
/// processor time, until its input ends.
///
/// # Errors
/// When sockets or memory cannot be had.
pub fn run(args: &TargetArgs) -> Result<()> {
    if let Some(count) = args.lanes {
        return lanes::receive(count, &args.pattern);
    }
    let (_memory, range) = pool(0);
    let plane = TcpDataPlane::open(DataConfig::default())?;
    // SAFETY: the memory outlives the plane, and only the plane uses it.
    let generation = unsafe { plane.register(&[range]) }?.generation;
    let rows = vec![range];
    plane.open_grant(GrantedRows { grant: GRANT, generation, rows, allow_ungranted: false })?;
    let port = plane.session().port;
    say(&json!({"port": port, "generation": generation.0, "start": range.start.0}))?;
    answer_cpu()
}

/// Answers each line of standard input with this process' processor time.
pub(super) fn answer_cpu() -> Result<()> {
    for line in std::io::stdin().lock().lines() {
        line?;
        say(&json!({"cpu": cpu::seconds()}))?;
    }
    Ok(())
}

pub(super) fn say(what: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{what}")?;
    Ok(out.flush()?)
}

/// Memory of the pool's size, touched.
pub(super) fn pool(fill: u8) -> (Vec<u8>, MemoryRange) {
    let mut memory = vec![fill; POOL as usize];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = fill.wrapping_add(1));
    let start = Address(memory.as_mut_ptr().expose_provenance() as u64);
    (memory, MemoryRange { start, len: Bytes(POOL) })
}

/// The receiving process, as its parent sees it. Ends with its input.
pub(super) struct Target {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
}

impl Target {
    /// Starts it and returns what it says first.
    pub fn start(args: &[String]) -> Result<(Self, Value)> {
        let program = std::env::current_exe().context("this program's file is not known")?;
        let mut child = Command::new(program)
            .arg(COMMAND)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the receiving process")?;
        let lines = BufReader::new(child.stdout.take().context("its output is piped")?);
        let stdin = child.stdin.take();
        let mut target = Self { child, stdin, lines };
        let hello = target.line()?;
        Ok((target, hello))
    }

    /// Its processor time so far, in seconds.
    pub fn cpu(&mut self) -> Result<f64> {
        let stdin = self.stdin.as_mut().context("its input is piped")?;
        stdin.write_all(b"\n")?;
        self.line()?["cpu"].as_f64().context("the receiving process said no number")
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        serde_json::from_str(&line).context("the receiving process ended")
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}
