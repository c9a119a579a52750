//! `cargo xtask test`: the steps, in order.

use crate::report::{Line, Outcome, render};
use crate::{fuzz, python, rdma, run, setup, tools};
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// What to check.
#[derive(Args)]
pub struct Options {
    /// Only what every change needs: format, lints, unit and property tests.
    #[arg(long, conflicts_with = "only")]
    quick: bool,
    /// Only these steps.
    #[arg(long, value_enum, num_args = 1..)]
    only: Vec<Step>,
}

/// One step; the order here is the order of the run, cheapest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    /// rustfmt changes nothing
    Format,
    /// clippy has nothing to say about any target
    Lints,
    /// the documents build, and every link in them leads somewhere
    Documents,
    /// cargo-deny: licences, sources, versions
    Licences,
    /// cargo-deny: known vulnerabilities
    Advisories,
    /// core builds where no clock, socket or thread exists
    Purity,
    /// unit, property and integration tests
    Tests,
    /// examples in the documents
    Doctests,
    /// every fuzz campaign for a moment, in a release build
    Fuzz,
    /// the same actors in simulated time, on a simulated network
    Simulation,
    /// simulated runs: the ledger, 200 of the swarm, some of every scenario, planted bugs
    Campaigns,
    /// installs the interop tests' peers
    Peers,
    /// real peers: Mooncake's transfer engine, libzmq, pulls that vLLM sent
    Interop,
    /// the Python package: builds, types, tests, example
    Python,
    /// the connector inside real vLLM: `cargo xtask test-vllm`
    Vllm,
    /// RDMA over soft-RoCE, in machines that are booted: `cargo xtask test-rdma`
    Rdma,
}

const QUICK: [Step; 3] = [Step::Format, Step::Lints, Step::Tests];
/// Runs real peers, so it is a step of its own.
const INTEROP_CRATE: &str = "kvbaton-tests";
/// Simulated worlds.
const SIMULATION_CRATE: &str = "kvbaton-transport-sim";

/// Runs the steps; true when nothing failed.
///
/// # Errors
/// When a program that every step needs cannot be started.
pub fn test(options: &Options) -> Result<bool> {
    let steps = if options.quick {
        QUICK.to_vec()
    } else if options.only.is_empty() {
        Step::value_variants().to_vec()
    } else {
        Step::value_variants().iter().copied().filter(|it| options.only.contains(it)).collect()
    };
    let mut lines = Vec::new();
    for step in steps {
        let (name, what) = step.describe();
        println!("{name}: {what}");
        let begin = Instant::now();
        let outcome = step.run(&lines)?;
        lines.push(Line { step: name, outcome, took: begin.elapsed() });
    }
    print!("\n{}", render(&lines));
    Ok(!lines.iter().any(|line| line.outcome.failed()))
}

impl Step {
    fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::Format => ("format", "cargo fmt --all --check"),
            Self::Lints => ("lints", "clippy on every target, warnings are errors"),
            Self::Documents => ("documents", "rustdoc, warnings are errors"),
            Self::Licences => ("licences", "cargo-deny: licences, sources, versions (deny.toml)"),
            Self::Advisories => ("advisories", "cargo-deny: known vulnerabilities"),
            Self::Purity => ("purity", "core for wasm32-unknown-unknown"),
            Self::Tests => ("tests", "unit, property and integration tests"),
            Self::Doctests => ("doctests", "examples in the documents"),
            Self::Fuzz => ("fuzz", "every fuzz campaign for two seconds, from a fixed seed"),
            Self::Simulation => {
                ("simulation", "core, actors, model engine and simulated worlds under --cfg madsim")
            }
            Self::Campaigns => (
                "campaigns",
                "simulated runs: the ledger, 200 seeds of the swarm, every scenario, planted bugs",
            ),
            Self::Peers => ("peers", "cargo xtask setup"),
            Self::Interop => ("interop", "real Mooncake and ZeroMQ peers, pulls that vLLM sent"),
            Self::Python => ("python", "the Python package: build, types, tests, example"),
            Self::Vllm => ("vllm", "the connector inside real vLLM"),
            Self::Rdma => ("rdma", "the RDMA transport over soft-RoCE, in one machine and in two"),
        }
    }

    /// `before` are the steps that ran already.
    fn run(self, before: &[Line]) -> Result<Outcome> {
        match self {
            Self::Format => check(cargo(&["fmt", "--all", "--check", "--", "--color", "never"])),
            Self::Lints => lints(),
            Self::Documents => {
                let mut command = cargo(&["doc", "--locked", "--workspace", "--no-deps"]);
                command.env("RUSTDOCFLAGS", "-D warnings");
                check(command)
            }
            Self::Licences => licences(),
            Self::Advisories => Ok(Outcome::NotRun(
                "the advisory database is a git repository, and the gate fetches nothing but \
                 packages; where it can be reached, run \
                 `target/tools/bin/cargo-deny check advisories`"
                    .into(),
            )),
            Self::Purity => purity(),
            Self::Tests => tests(&[
                "--workspace",
                "--exclude",
                INTEROP_CRATE,
                "--lib",
                "--bins",
                "--tests",
                "--examples",
            ]),
            Self::Doctests => tests(&["--workspace", "--doc"]),
            Self::Fuzz => check(fuzz::smoke()),
            Self::Simulation => simulation(),
            Self::Campaigns => campaigns(),
            Self::Peers => Ok(setup::setup(&setup::Options::default()).map_or_else(
                |error| {
                    println!("{error:#}");
                    Outcome::Failed
                },
                |()| Outcome::Passed,
            )),
            Self::Interop => {
                let peers = before.iter().find(|line| line.step == "peers");
                if peers.is_some_and(|line| line.outcome.failed()) {
                    return Ok(Outcome::NotRun("its peers could not be installed".into()));
                }
                tests(&["-p", INTEROP_CRATE])
            }
            Self::Python => {
                let peers = before.iter().find(|line| line.step == "peers");
                if peers.is_some_and(|line| line.outcome.failed()) {
                    return Ok(Outcome::NotRun("its environment could not be installed".into()));
                }
                python::test()
            }
            // It takes an hour and gigabytes: it has a command of its own.
            Self::Vllm => Ok(Outcome::NotRun(python::vllm_missing().unwrap_or_else(|| {
                "a suite of its own, for before a release: `cargo xtask test-vllm`".into()
            }))),
            Self::Rdma => rdma::step(),
        }
    }
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = run::cargo();
    command.args(arguments);
    command
}

/// A step that passes or fails as a whole.
fn check(command: Command) -> Result<Outcome> {
    let finished = run::capture(command)?;
    if finished.success {
        return Ok(Outcome::Passed);
    }
    println!("{}", finished.output.trim_end());
    Ok(Outcome::Failed)
}

/// A step that is made of tests.
fn run_tests(command: Command) -> Result<Outcome> {
    let finished = run::capture(command)?;
    let outcome = Outcome::of_tests(&finished.output, finished.success);
    if outcome.failed() {
        let passed = |line: &&str| line.starts_with("test ") && line.ends_with(" ... ok");
        finished.output.lines().filter(|line| !passed(line)).for_each(|line| println!("{line}"));
    }
    Ok(outcome)
}

fn tests(arguments: &[&str]) -> Result<Outcome> {
    let mut command = cargo(&["test", "--locked", "--no-fail-fast"]);
    command.args(arguments);
    run_tests(command)
}

/// Lints every target of a build without the simulator, then what is built with it only.
fn lints() -> Result<Outcome> {
    const DENY_WARNINGS: [&str; 3] = ["--", "-D", "warnings"];
    let mut plain = cargo(&["clippy", "--locked", "--workspace", "--all-targets"]);
    plain.args(DENY_WARNINGS);
    let outcome = check(plain)?;
    if outcome.failed() {
        return Ok(outcome);
    }
    let mut simulated = simulated("clippy");
    simulated.args(["--all-targets", "-p", SIMULATION_CRATE, "--features", "simulation"]);
    simulated.args(DENY_WARNINGS);
    check(simulated)
}

/// A cargo command that builds with the simulator.
fn simulated(command: &str) -> Command {
    let mut command = cargo(&[command, "--locked"]);
    command.args(["--config", "build.rustflags=['--cfg','madsim']"]);
    command.args(["--target-dir", "target/sim"]);
    // The variable would take the place of the flags above.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}

/// First that a seed has one history, because nothing else can be trusted without it. Suites
/// are named: cargo fails when one is not there.
fn simulation() -> Result<Outcome> {
    let mut determinism = simulated("test");
    determinism.args(["-p", SIMULATION_CRATE, "--features", "simulation"]);
    determinism.args(["--test", "a_determinism"]);
    let first = run_tests(determinism)?;
    if first.failed() {
        return Ok(first);
    }
    let mut suites = simulated("test");
    suites.args(["--no-fail-fast", "-p", SIMULATION_CRATE, "--features", "simulation"]);
    suites.args(["--lib", "--bins", "--test", "scenarios", "--example", "own_scheduler"]);
    let suites = run_tests(suites)?;
    let mut others = simulated("test");
    others.arg("--no-fail-fast");
    for package in ["kvbaton-core", "kvbaton-actors", "kvbaton-model-engine"] {
        others.args(["-p", package]);
    }
    Ok(first.and(suites).and(run_tests(others)?))
}

/// The swarm after what once failed, every scenario, and a few planted bugs: each has its own
/// seeds here. What developers run for longer is `cargo xtask sim` and `cargo xtask alarm`.
fn campaigns() -> Result<Outcome> {
    const SWARM: &[&str] = &["run", "--seeds", "0..200"];
    const SCENARIOS: &[&str] = &["run", "--scenario", "all", "--seeds", "1000..1004"];
    const ALARM: &[&str] = &["alarm", "--starts", "1", "--bug"];
    const BUGS: &[&str] =
        &["grant-not-revoked", "head-taken-for-tail", "first-answer-ends-load", "reported-twice"];
    let mut outcome = Outcome::Passed;
    for arguments in [SWARM.to_vec(), SCENARIOS.to_vec(), [ALARM, BUGS].concat()] {
        let mut command = simulated("run");
        command.args(["--quiet", "-p", SIMULATION_CRATE, "--features", "planted-bugs"]);
        command.args(["--bin", "kvbaton-sim", "--"]).args(arguments);
        outcome = outcome.and(check(command)?);
    }
    Ok(outcome)
}

fn purity() -> Result<Outcome> {
    const TARGET: &str = "wasm32-unknown-unknown";
    let mut rustc = run::command(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--print", "target-libdir", "--target", TARGET]);
    let libraries = PathBuf::from(run::must(rustc)?.trim());
    if !libraries.is_dir() {
        return Ok(Outcome::NotRun(format!(
            "the target {TARGET} is not installed (rustup target add {TARGET})"
        )));
    }
    check(cargo(&["check", "--locked", "-p", "kvbaton-core", "--target", TARGET]))
}

fn licences() -> Result<Outcome> {
    let program = match tools::DENY.program()? {
        Ok(program) => program,
        Err(reason) => return Ok(Outcome::NotRun(reason)),
    };
    let mut command = run::command(program);
    command.args(["--locked", "check", "-D", "unmatched-skip"]);
    command.args(["bans", "licenses", "sources"]);
    check(command)
}
