//! `cargo xtask`: the commands that need more than cargo.

mod fuzz;
mod gate;
mod model_check;
mod mutants;
mod python;
mod rdma;
mod report;
mod run;
mod setup;
mod sim;
mod tally;
mod tools;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// What developers of kvbaton run beside cargo itself.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Every change:      cargo xtask test --quick
Before it merges:  cargo xtask test
One step of it:    cargo xtask test --only simulation
A swarm of faults: cargo xtask sim --seeds 1..1000
A minute of fuzz:  cargo xtask fuzz run --seconds 60
Small worlds:      cargo xtask model-check --ranks 1 --faults restart,drop
Mutants you made:  cargo xtask mutants --diff
";

#[derive(Subcommand)]
enum Command {
    /// Checks everything: style, lints, documents, dependencies, tests, simulation, real peers.
    ///
    /// Steps run one after the other; the output of those that fail is shown. At the end
    /// comes a table of the steps, then what could not run and why, and as the last line
    /// `N passed, N failed`, which counts each test, and each other step as one. Exits
    /// with 1 when anything failed. Sets up the interop tests' peers by itself.
    Test(gate::Options),
    /// Installs what the interop tests need, and says what it does.
    ///
    /// Makes a Python environment in `.venv` with the packages that
    /// `tests/peers/requirements.txt` pins: real Mooncake and ZeroMQ peers. They need
    /// Debian's libibverbs1; as root it is installed with apt-get when it is missing,
    /// otherwise the command is printed. Running it again changes nothing.
    Setup(setup::Options),
    /// Runs the connector inside real vLLM, on the CPU, next to the stock one.
    ///
    /// Builds the package optimized, installs it beside vLLM in `.vllm` (made by `cargo xtask
    /// setup --vllm`), and runs `python/vllm_tests`: every pairing of ours with stock 0.32 and
    /// 0.33, failures, sleep. Takes an hour; `cargo xtask test-vllm test_requests.py -k prefix`
    /// runs a part, arguments go to pytest. Exits with 1 when something failed.
    TestVllm(python::Options),
    /// Runs the RDMA transport over soft-RoCE, inside machines that it boots.
    ///
    /// Builds an image of Debian's kernel, rdma-core and our programs, and boots it in QEMU
    /// (KVM where it works, else emulated; two minutes): the contract of a data plane, two
    /// processes, the demo, two machines, losses, a port that goes down, figures beside
    /// perftest's. As root it installs the packages that it needs. Where no machine can be
    /// had it says so, and nothing counts as passed. Exits with 1 when something failed.
    TestRdma(rdma::Options),
    /// Runs simulated clusters by seed, with faults, until an oracle objects.
    ///
    /// Builds the simulation (checked arithmetic, optimized; minutes at first) and hands it
    /// the arguments: `cargo xtask sim --seeds 1..1000`, `cargo xtask sim replay --scenario
    /// mixed --seed 17`, `cargo xtask sim list`. Without a command it runs a campaign; `cargo
    /// xtask sim help` tells more. Exits with 1 when something failed, with 2 when it was
    /// used wrongly.
    #[command(disable_help_flag = true)]
    Sim(sim::Options),
    /// Tests the tests: searches for planted bugs, says how many seeds each took.
    ///
    /// Builds the simulation with its planted bugs. Prints the median number of seeds over
    /// five searches for each bug; exits with 1 when one was not found within 2,000 seeds.
    /// `cargo xtask alarm --bug NAME` searches for one.
    #[command(disable_help_flag = true)]
    Alarm(sim::Options),
    /// Runs the fuzz campaigns, in a release build.
    ///
    /// Arguments go to `kvbaton-fuzz` as they are: `run [CAMPAIGN…] [--seconds N]
    /// [--seed S]`, `replay FILE…`, `list`. Failing inputs are made small and kept in
    /// `fuzz/corpus`.
    Fuzz(fuzz::Options),
    /// Explores every order of events of small worlds over core's machines.
    ///
    /// Builds `kvbaton-model-check` optimized and passes the arguments on; without any, the
    /// full set runs. Exits with 1 when a rule is broken, and shows the steps that lead there.
    ModelCheck(model_check::Options),
    /// Changes core in small ways and looks whether a test fails.
    ///
    /// All mutants are built at once, each behind a switch, and then meet those tests of core
    /// and of the fuzz targets that run through their places. Prints the score, caught of those
    /// that build, and the survivors. Exits with 1 when it is below 95 %, or when a survivor is not in
    /// `core/mutants.survivors.txt` with a reason. Installs cargo-mutants by itself.
    Mutants(mutants::Options),
}

fn main() -> ExitCode {
    let passed = |it| if it { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let result = match Arguments::parse().command {
        Command::Test(options) => gate::test(&options).map(passed),
        Command::Setup(options) => setup::setup(&options).map(|()| ExitCode::SUCCESS),
        Command::TestVllm(options) => python::test_vllm(&options).map(passed),
        Command::TestRdma(options) => rdma::test_rdma(&options).map(passed),
        Command::Sim(options) => sim::sim(&options).map(ExitCode::from),
        Command::Alarm(options) => sim::alarm(&options).map(ExitCode::from),
        Command::Fuzz(options) => fuzz::fuzz(&options).map(passed),
        Command::ModelCheck(options) => model_check::model_check(&options).map(passed),
        Command::Mutants(options) => mutants::mutants(&options).map(passed),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
