//! `cargo xtask mutants`: changes core in small ways and looks whether a test fails.

mod areas;
mod outcome;
mod tree;

use crate::{run, tools, workspace};
use anyhow::{Context, Result, bail, ensure};
use areas::{AREAS, Area};
use clap::Args;
use outcome::{Accepted, Outcomes, render};
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What to mutate, and for how long.
#[derive(Args)]
pub struct Options {
    /// Stops starting mutants after so many minutes; what was tested by then is spread evenly.
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Mutants that are built and tested at once, each in a tree of its own.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    jobs: u8,
    /// Only mutants of these files (`core/src/wire/**`).
    #[arg(long, num_args = 1.., value_name = "GLOB")]
    file: Vec<String>,
    /// Only mutants in lines that differ from the branch `main`.
    #[arg(long)]
    diff: bool,
    /// Starts after so many hundredths of the mutants, for a run that goes on where one ended.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..100))]
    part: u8,
}

/// Score that core is held to, in percent of the mutants that build.
const WANTED: f64 = 95.0;
/// Mutants of one run of cargo-mutants; between two, the clock is looked at.
const CHUNK: usize = 12;
/// Seconds for an area's tests, which take one or two, and for all of core's.
const AREA_TIMEOUT: &str = "30";
const WHOLE_TIMEOUT: &str = "600";
const SURVIVORS: &str = "core/mutants.survivors.txt";

/// One run of cargo-mutants: a shard of an area.
struct Chunk {
    area: usize,
    shard: usize,
    of: usize,
}

/// Tests mutants of core; true when enough are caught and every survivor is accepted.
///
/// # Errors
/// When cargo-mutants cannot be installed or run, or tests fail without a mutant.
pub fn mutants(options: &Options) -> Result<bool> {
    let begin = Instant::now();
    let program = match tools::MUTANTS.program()? {
        Ok(program) => program,
        Err(reason) => bail!(reason),
    };
    let accepted = Accepted::read(&fs::read_to_string(workspace::root().join(SURVIVORS))?)?;
    let picked = pick(options)?;
    let mut chunks = Vec::new();
    let mut planned = 0;
    for (at, area) in AREAS.iter().enumerate() {
        let count = count(&program, area, &picked)?;
        planned += count;
        let of = count.div_ceil(CHUNK);
        chunks.extend((0..of).map(|shard| Chunk { area: at, shard, of }));
    }
    // By place within their area, so that whatever is tested by the end is spread evenly.
    chunks.sort_by(|a, b| (a.shard * b.of).cmp(&(b.shard * a.of)));
    let start = chunks.len() * usize::from(options.part) / 100;
    chunks.rotate_left(start);
    println!("{planned} mutants of core; the first of each tree builds what core depends on");
    let queue = Mutex::new(VecDeque::from(chunks));
    let all = Mutex::new(Outcomes::default());
    // The rest of the time is for those that survive their area's tests.
    let end = begin + Duration::from_secs(options.minutes * 60) * 5 / 6;
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..usize::from(options.jobs))
            .map(|number| {
                let (program, picked, queue, all) = (&program, &picked, &queue, &all);
                scope.spawn(move || work(number, program, picked, (queue, all), end, begin))
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker"))
    })?;
    let mut outcomes = all.into_inner().expect("workers have ended");
    if !outcomes.missed.is_empty() {
        println!("{} survive their area's tests and meet all", outcomes.missed.len());
        outcomes.retest(retest(&program, &outcomes)?);
    }
    let unlisted = accepted.unlisted(&outcomes);
    print!("\n{}", render(&outcomes, planned, &unlisted));
    println!("took {:.1} minutes", begin.elapsed().as_secs_f64() / 60.0);
    Ok(outcomes.score() >= WANTED && unlisted.is_empty())
}

/// Options of cargo-mutants for what the caller asked for.
fn pick(options: &Options) -> Result<Vec<String>> {
    let mut picked = Vec::new();
    if options.diff {
        let mut diff = run::command("git");
        diff.args(["diff", "--merge-base", "main", "--", "core/src"]);
        let path = workspace::root().join("target/mutants/main.diff");
        fs::create_dir_all(path.parent().expect("a folder")).context("target/mutants")?;
        fs::write(&path, run::must(diff)?).context("target/mutants/main.diff")?;
        picked.extend(["--in-diff".to_owned(), path.to_string_lossy().into_owned()]);
    }
    // Of those of the area; an expression is the only way to narrow it twice.
    if !options.file.is_empty() {
        let any: Vec<String> = options.file.iter().map(|glob| expression(glob)).collect();
        picked.extend(["--re".to_owned(), format!("^({})", any.join("|"))]);
    }
    Ok(picked)
}

/// A glob as an expression for the beginning of a mutant's name.
fn expression(glob: &str) -> String {
    let escaped = glob.replace('.', "\\.");
    escaped.replace("**", "\0").replace('*', "[^/:]*").replace('\0', "[^:]*") + ":"
}

fn count(program: &Path, area: &Area, picked: &[String]) -> Result<usize> {
    let mut list = cargo_mutants(program, &workspace::root(), area, picked);
    list.arg("--list");
    Ok(run::must(list)?.lines().filter(|line| line.starts_with("core/src/")).count())
}

fn cargo_mutants(program: &Path, tree: &Path, area: &Area, picked: &[String]) -> Command {
    let mut command = run::command(program);
    command.args(["mutants", "--package", "kvbaton-core", "--colors", "never"]);
    command.arg("--dir").arg(tree).args(area.selection()).args(picked);
    command.env_remove("RUSTFLAGS").env_remove("CARGO_TARGET_DIR");
    command
}

type Shared<'a> = (&'a Mutex<VecDeque<Chunk>>, &'a Mutex<Outcomes>);

/// Tests chunks in one tree until none is left or time is up.
fn work(
    number: usize,
    program: &Path,
    picked: &[String],
    (queue, all): Shared<'_>,
    end: Instant,
    begin: Instant,
) -> Result<()> {
    let tree = tree::sync(number)?;
    build(&tree)?;
    while Instant::now() < end {
        let Some(chunk) = queue.lock().expect("no worker panics").pop_front() else { break };
        let area = &AREAS[chunk.area];
        let mut command = cargo_mutants(program, &tree, area, picked);
        command.arg("--shard").arg(format!("{}/{}", chunk.shard, chunk.of));
        command.args(["--sharding", "round-robin", "--test-package", "kvbaton-core"]);
        command.args(area.tests());
        let found = test(command, &tree, AREA_TIMEOUT)?;
        let mut all = all.lock().expect("no worker panics");
        all.add(found);
        println!(
            "{:>5.1} min  {:<12} {:>5} tested, {:.1} % caught",
            begin.elapsed().as_secs_f64() / 60.0,
            area.name,
            all.viable() + all.unviable.len(),
            all.score(),
        );
    }
    Ok(())
}

/// Core's tests without a mutant, which must pass: then a mutant's failure means something.
fn build(tree: &Path) -> Result<()> {
    let mut command = run::cargo();
    command.current_dir(tree).args(["test", "--locked", "--profile", "mutants"]);
    command.args(["--package", "kvbaton-core", "--lib", "--tests", "--quiet"]);
    command.env_remove("RUSTFLAGS").env_remove("CARGO_TARGET_DIR");
    run::must(command).map(|_| ()).context("core's tests fail without a mutant")
}

/// Survivors again, with all of core's tests and the fuzz targets' own.
fn retest(program: &Path, outcomes: &Outcomes) -> Result<Outcomes> {
    let tree = tree::sync(0)?;
    let mut command = run::command(program);
    command.args(["mutants", "--package", "kvbaton-core", "--colors", "never"]);
    command.arg("--dir").arg(&tree).args(["--test-package", "kvbaton-core"]);
    if tree.join("fuzz/Cargo.toml").exists() {
        command.args(["--test-package", "kvbaton-fuzz"]);
    }
    command.args(["--cargo-test-arg=--lib", "--cargo-test-arg=--tests"]);
    for mutant in &outcomes.missed {
        command.arg("--re").arg(format!("^{}$", escape(mutant)));
    }
    command.env_remove("RUSTFLAGS").env_remove("CARGO_TARGET_DIR");
    test(command, &tree, WHOLE_TIMEOUT)
}

/// A name as an expression that matches it alone.
fn escape(name: &str) -> String {
    let special = |letter: char| !letter.is_alphanumeric() && !" /:_\"'<>=!%;,@~`".contains(letter);
    name.chars().fold(String::new(), |mut text, letter| {
        if special(letter) {
            text.push('\\');
        }
        text.push(letter);
        text
    })
}

/// Runs cargo-mutants. A mutant whose tests take longer than `timeout` counts as caught, so
/// it must be far beyond what they need on a busy machine.
fn test(mut command: Command, tree: &Path, timeout: &str) -> Result<Outcomes> {
    let output: PathBuf = tree.join("target/out");
    fs::create_dir_all(&output).with_context(|| format!("{}", output.display()))?;
    command.args(["--in-place", "--baseline", "skip", "--profile", "mutants"]);
    command.args(["--timeout", timeout, "--build-timeout", "600", "--output"]).arg(&output);
    let finished = run::capture(command)?;
    let found = Outcomes::read(&output);
    // It exits with 2 or 3 where mutants were missed or timed out: that is for us to judge.
    ensure!(found.is_ok(), "cargo-mutants failed:\n{}", finished.output.trim_end());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_themselves_alone() {
        assert_eq!(expression("core/src/wire/**"), "core/src/wire/[^:]*:");
        assert_eq!(expression("core/src/*.rs"), "core/src/[^/:]*\\.rs:");
        assert_eq!(
            escape("a.rs:1:2: replace + with - in f"),
            "a\\.rs:1:2: replace \\+ with \\- in f"
        );
    }
}
