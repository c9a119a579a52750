//! `cargo xtask mutants`: changes core in small ways and looks whether a test fails.
//!
//! cargo-mutants says what to change. All of it is built into one copy of core, each mutant
//! behind a switch ([`switch`]); then each meets the tests that run through its place, the
//! quickest first, until one fails. The few that no switch can express are left to
//! cargo-mutants, which builds them one by one.

mod build;
mod list;
mod meet;
mod outcome;
mod switch;
mod tree;

use crate::{run, tools, workspace};
use anyhow::{Context, Result, bail, ensure};
use build::Built;
use clap::Args;
use list::Mutant;
use meet::{Met, each};
use outcome::{Accepted, Outcomes, render};
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
    /// Mutants that are tested at once.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    jobs: u8,
    /// Only mutants of these files (`core/src/wire/**`).
    #[arg(long, num_args = 1.., value_name = "GLOB")]
    file: Vec<String>,
    /// Only mutants in lines that differ from the branch `main`.
    #[arg(long)]
    diff: bool,
}

/// Score that core is held to, in percent of the mutants that build.
const WANTED: f64 = 95.0;
/// Mutants between two lines of progress.
const CHUNK: usize = 100;
/// Seconds for all tests of a mutant that cargo-mutants builds.
const WHOLE_TIMEOUT: &str = "600";
const SURVIVORS: &str = "core/mutants.survivors.txt";

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
    let mutants = list::read(listing(&program, options)?)?;
    let say = |what: &str| println!("{:>5.1} min  {what}", begin.elapsed().as_secs_f64() / 60.0);
    say(&format!("{} mutants of core; they are built, all at once", mutants.len()));
    let tree = tree::sync(0)?;
    let built = build::build(&tree, &mutants)?;
    let jobs = usize::from(options.jobs);
    let tests = meet::tests(&built.programs, jobs, &tree.join("target/seen"))?;
    say(&format!("{} tests pass without a mutant, and say where they run", tests.len()));
    let outcomes = Mutex::new(Outcomes::default());
    for id in &built.unviable {
        outcomes.lock().expect("nobody else").unviable.insert(mutants[*id].name.clone());
    }
    let end = begin + Duration::from_secs(options.minutes * 60);
    each(jobs, &in_turn(&mutants, &built), |id| {
        if Instant::now() >= end {
            return Ok(());
        }
        let met = meet::meet(&tests, *id)?;
        let mut all = outcomes.lock().expect("no worker panics");
        let which = match met {
            Met::Caught => &mut all.caught,
            Met::TimedOut => &mut all.timed_out,
            Met::Missed => &mut all.missed,
        };
        which.insert(mutants[*id].name.clone());
        if all.viable() % CHUNK == 0 {
            say(&format!("{:>5} tested, {:.1} % caught", all.viable(), all.score()));
        }
        Ok(())
    })?;
    let mut outcomes = outcomes.into_inner().expect("workers have ended");
    if !built.ordinary.is_empty() && Instant::now() < end {
        say(&format!("{} that no switch expresses are built one by one", built.ordinary.len()));
        let names: Vec<&str> = built.ordinary.iter().map(|id| &*mutants[*id].name).collect();
        outcomes.add(one_by_one(&program, &names)?);
    }
    let unlisted = accepted.unlisted(&outcomes);
    print!("\n{}", render(&outcomes, mutants.len(), &unlisted));
    println!("took {:.1} minutes", begin.elapsed().as_secs_f64() / 60.0);
    Ok(outcomes.score() >= WANTED && unlisted.is_empty())
}

/// The mutants that can be switched on, so that whatever is tested by the end is spread
/// evenly over core: every 64th, then those between.
fn in_turn(mutants: &[Mutant], built: &Built) -> Vec<usize> {
    let switched = |id: &usize| !built.unviable.contains(id) && !built.ordinary.contains(id);
    let mut ids: Vec<usize> = (0..mutants.len()).filter(switched).collect();
    ids.sort_by_key(|id| (id.reverse_bits() >> (usize::BITS - 6), *id));
    ids
}

/// Lists what the caller asked for.
fn listing(program: &Path, options: &Options) -> Result<Command> {
    let mut list = cargo_mutants(program, &workspace::root());
    list.args(["--list", "--json"]);
    if options.file.is_empty() {
        list.args(["--file", "core/src/**"]);
    }
    list.args(options.file.iter().flat_map(|glob| ["--file", glob]));
    if options.diff {
        let mut diff = run::command("git");
        diff.args(["diff", "--merge-base", "main", "--", "core/src"]);
        let path = workspace::root().join("target/mutants/main.diff");
        fs::create_dir_all(path.parent().expect("a folder")).context("target/mutants")?;
        fs::write(&path, run::must(diff)?).context("target/mutants/main.diff")?;
        list.arg("--in-diff").arg(path);
    }
    Ok(list)
}

fn cargo_mutants(program: &Path, tree: &Path) -> Command {
    let mut command = run::command(program);
    command.args(["mutants", "--package", "kvbaton-core", "--colors", "never"]);
    command.arg("--dir").arg(tree);
    command.env_remove("RUSTFLAGS").env_remove("CARGO_TARGET_DIR");
    command
}

/// Has cargo-mutants build each of these, and run all tests.
fn one_by_one(program: &Path, names: &[&str]) -> Result<Outcomes> {
    let tree = tree::sync(0)?;
    let mut command = cargo_mutants(program, &tree);
    command.args(["--test-package", "kvbaton-core"]);
    if tree.join("fuzz/Cargo.toml").exists() {
        command.args(["--test-package", "kvbaton-fuzz"]);
    }
    command.args(["--cargo-test-arg=--lib", "--cargo-test-arg=--tests"]);
    for name in names {
        command.arg("--re").arg(format!("^{}$", escape(name)));
    }
    let output: PathBuf = tree.join("target/out");
    fs::create_dir_all(&output).with_context(|| output.display().to_string())?;
    command.args(["--in-place", "--baseline", "skip", "--profile", "mutants"]);
    command.args(["--timeout", WHOLE_TIMEOUT, "--build-timeout", "600", "--output"]).arg(&output);
    let finished = run::capture(command)?;
    let found = Outcomes::read(&output);
    // It exits with 2 or 3 where mutants were missed or timed out: that is for us to judge.
    ensure!(found.is_ok(), "cargo-mutants failed:\n{}", finished.output.trim_end());
    found
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_match_themselves_alone() {
        assert_eq!(
            escape("a.rs:1:2: replace + with - in f"),
            "a\\.rs:1:2: replace \\+ with \\- in f"
        );
    }

    #[test]
    fn whatever_is_tested_by_the_end_is_spread() {
        let mutant = Mutant {
            name: String::new(),
            file: String::new(),
            genre: list::Genre::Other,
            replacement: String::new(),
            line: 1,
            column: 1,
            returns: None,
        };
        let (unviable, ordinary) = (BTreeSet::from([0]), BTreeSet::from([64]));
        let built = Built { programs: Vec::new(), unviable, ordinary };
        let order = in_turn(&vec![mutant; 256], &built);
        assert_eq!(order.len(), 254);
        assert_eq!(order[..6], [128, 192, 32, 96, 160, 224]);
    }
}
