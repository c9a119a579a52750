//! `cargo xtask test-rdma`: the RDMA transport inside machines with soft-RoCE.
//!
//! Debian's kernel with rdma_rxe boots in QEMU (with KVM where the processor has it, else
//! emulated), with busybox, rdma-core, and our programs: `transport-rdma/vm`.

use crate::report::{Line, Outcome, render};
use crate::tally::Tally;
use crate::{run, workspace};
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What to boot.
#[derive(Args)]
pub struct Options {
    /// Only one of them.
    #[arg(long, value_enum)]
    only: Option<Machines>,
}

/// What is booted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Machines {
    /// One machine: the contract, two processes, the demo, figures beside perftest's
    One,
    /// Two machines on a wire: also over a link with losses, and with a port going down
    Two,
}

/// Programs that go into a machine or make one.
const PROGRAMS: [&str; 10] = [
    "qemu-system-x86_64",
    "busybox",
    "cpio",
    "xz",
    "ip",
    "tc",
    "rdma",
    "ibv_devinfo",
    "ib_write_bw",
    "dpkg-deb",
];
const PACKAGES: &str = "qemu-system-x86 busybox-static cpio xz-utils iproute2 libibverbs1 \
                        ibverbs-providers ibverbs-utils perftest";
/// What libibverbs needs to find soft-RoCE.
const DRIVER: &str = "/etc/libibverbs.d/rxe.driver";

/// Runs the suite and says how it went; true when nothing failed.
///
/// # Errors
/// When cargo cannot be started.
pub fn test_rdma(options: &Options) -> Result<bool> {
    let begin = Instant::now();
    let outcome = run_suite(options.only)?;
    let failed = outcome.failed();
    print!("\n{}", render(&[Line { step: "rdma", outcome, took: begin.elapsed() }]));
    Ok(!failed)
}

/// The gate's step.
///
/// # Errors
/// As [`test_rdma`].
pub fn step() -> Result<Outcome> {
    run_suite(None)
}

fn run_suite(only: Option<Machines>) -> Result<Outcome> {
    if let Some(reason) = unavailable()? {
        return Ok(Outcome::NotRun(reason));
    }
    let programs = match programs()? {
        Ok(programs) => programs,
        Err(output) => {
            println!("{output}");
            return Ok(Outcome::Failed);
        }
    };
    let out = workspace::root().join("target/rdma");
    let mut build = script("build.sh", &out);
    build.args(programs);
    let built = run::capture(build)?;
    if !built.success {
        let last = built.output.lines().last().unwrap_or_default().to_owned();
        return Ok(Outcome::NotRun(format!("the soft-RoCE machine could not be built: {last}")));
    }
    let mut consoles = Vec::new();
    if only != Some(Machines::Two) {
        consoles.push(one(&out)?);
    }
    if only != Some(Machines::One) {
        consoles.push(two(&out)?);
    }
    Ok(judge(&consoles))
}

/// Why there can be no machine; installs what is missing where it may.
fn unavailable() -> Result<Option<String>> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Ok(Some("the soft-RoCE machine is built for x86-64 Linux only".into()));
    }
    if missing().is_empty() {
        return Ok(None);
    }
    let install = format!("apt-get install -y --no-install-recommends {PACKAGES}");
    let root = run::capture(shell("test \"$(id -u)\" = 0 && command -v apt-get"))?.success;
    if root {
        println!("  installing what the soft-RoCE machine is made of, once: {PACKAGES}");
        let install = format!("apt-get -q update && DEBIAN_FRONTEND=noninteractive {install}");
        run::capture(shell(&install))?;
    }
    let missing = missing();
    let reason = format!("without {}; as root: {install}", missing.join(", "));
    Ok((!missing.is_empty()).then_some(reason))
}

fn missing() -> Vec<&'static str> {
    let there =
        |name: &&str| run::capture(shell(&format!("command -v {name}"))).is_ok_and(|it| it.success);
    let mut missing: Vec<&str> = PROGRAMS.iter().filter(|name| !there(name)).copied().collect();
    if !Path::new(DRIVER).exists() {
        missing.push(DRIVER);
    }
    missing
}

fn shell(line: &str) -> Command {
    let mut command = run::command("sh");
    command.args(["-c", line]);
    command
}

/// Builds what runs inside; or what the compiler said.
fn programs() -> Result<Result<[PathBuf; 2], String>> {
    for arguments in [
        ["build", "--locked", "-p", "kvbaton", "--bins"].as_slice(),
        &["build", "--locked", "-p", "kvbaton-transport-rdma", "--example", "soft_roce"],
    ] {
        let mut cargo = run::cargo();
        cargo.args(arguments);
        let built = run::capture(cargo)?;
        if !built.success {
            return Ok(Err(built.output));
        }
    }
    let debug = workspace::root().join("target/debug");
    Ok(Ok([debug.join("kvbaton"), debug.join("examples/soft_roce")]))
}

fn script(name: &str, out: &Path) -> Command {
    let mut command = run::command(workspace::root().join("transport-rdma/vm").join(name));
    command.env("OUT", out).env("CACHE", out.join("cache"));
    command
}

/// One machine's console.
fn one(out: &Path) -> Result<String> {
    println!("  one machine");
    let mut boot = script("boot.sh", out);
    boot.args(["one"]).env("LIMIT", "240");
    let console = run::capture(boot)?.output;
    println!("{console}");
    Ok(console)
}

/// The consoles of two machines on a wire.
fn two(out: &Path) -> Result<String> {
    /// Until the first one's emulator listens.
    const HEAD_START: Duration = Duration::from_secs(2);
    println!("  two machines");
    let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
    let port = listener.local_addr().context("no free port")?.port().to_string();
    drop(listener);
    let node = |number: &str| {
        let mut boot = script("boot.sh", out);
        boot.args(["two", number]).env("LIMIT", "150").env("PORT", &port);
        boot.env("CPUS", "1").env("MEMORY", "512");
        boot
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| run::capture(node("1")));
        std::thread::sleep(HEAD_START);
        let second = run::capture(node("2"))?.output;
        let first = first.join().expect("no panic")?.output;
        let console = format!("receiving machine:\n{first}\nsending machine:\n{second}");
        println!("{console}");
        Ok(console)
    })
}

/// Counts what the machines said. One that never came up is no verdict on the transport.
fn judge(consoles: &[String]) -> Outcome {
    let came_up = |console: &String| console.contains("rxe0 ready");
    if !consoles.iter().any(came_up) {
        return Outcome::NotRun(
            "the soft-RoCE machine did not come up; its console is above".into(),
        );
    }
    let mut tally = Tally::default();
    for line in consoles.iter().flat_map(|it| it.lines()) {
        let checked = line.starts_with("rule ") || line.starts_with("scenario ");
        tally.passed += u64::from(checked && line.contains(": ok"));
        tally.failed += u64::from(line.contains(": FAILED"));
    }
    // A machine that ends without a word of success has failed as a whole.
    let whole = consoles.iter().all(|it| it.contains("machine: test ended with 0"));
    Outcome::Tests { tally, whole: whole || tally.failed > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_and_scenarios_count_and_a_machine_that_dies_is_a_failure() {
        let up = "machine: 6.1, 2 processors, rxe0 ready at 3 s\nrule a: ok (3 ms)\n";
        let fine = format!("{up}scenario b: ok, fast (1 ms)\nmachine: test ended with 0 at 9 s\n");
        assert_eq!(judge(std::slice::from_ref(&fine)).counts(), (2, 0));
        let bad = format!("{up}scenario b: FAILED, slow (1 ms)\nmachine: test ended with 1\n");
        assert_eq!(judge(&[fine, bad]).counts(), (3, 1));
        assert_eq!(judge(&[up.into()]).counts(), (1, 1), "it died");
        assert!(matches!(judge(&["no kernel".into()]), Outcome::NotRun(_)));
    }
}
