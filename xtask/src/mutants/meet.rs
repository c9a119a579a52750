//! Mutants meet the tests that reach them.

use super::build::Program;
use crate::run;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// One test, as it ran without a mutant.
pub struct Test {
    program: PathBuf,
    folder: PathBuf,
    name: String,
    took: Duration,
    /// Mutants whose place it runs through.
    reaches: BTreeSet<usize>,
}

/// What became of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Met {
    /// A test failed.
    Caught,
    /// A test did not end.
    TimedOut,
    /// All passed.
    Missed,
}

/// A test with a mutant may take this long, and so many times what it takes without: far
/// beyond what it needs, since a test that does not end counts as one that fails.
const LEAST: Duration = Duration::from_secs(20);
const TIMES: u32 = 20;
/// As long as any test may take without a mutant.
const MOST: Duration = Duration::from_secs(600);

/// Every test of the programs, quickest first.
///
/// # Errors
/// When one fails: then a mutant's failure would mean nothing.
pub fn tests(programs: &[Program], jobs: usize, seen: &Path) -> Result<Vec<Test>> {
    fs::create_dir_all(seen).with_context(|| seen.display().to_string())?;
    let mut named = Vec::new();
    for program in programs {
        let mut list = run::command(&program.path);
        list.current_dir(&program.folder).args(["--list", "--format", "terse"]);
        let list = run::must(list)?;
        let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
        named.extend(names.map(|name| (program, name.to_owned())));
    }
    let numbered: Vec<_> = named.into_iter().enumerate().collect();
    let tests = Mutex::new(Vec::new());
    each(jobs, &numbered, |(number, (program, name))| {
        let seen = seen.join(number.to_string());
        let _ = fs::remove_file(&seen);
        let begin = Instant::now();
        let mut command = test(&program.path, &program.folder, name);
        command.env("KVBATON_MUTANTS_SEEN", &seen);
        let passed = ends_well(command, MOST)?;
        ensure!(passed == Some(true), "test {name} of {} fails without a mutant", program.name);
        let reaches = fs::read_to_string(&seen).unwrap_or_default();
        tests.lock().expect("no worker panics").push(Test {
            program: program.path.clone(),
            folder: program.folder.clone(),
            name: name.clone(),
            took: begin.elapsed(),
            reaches: reaches.lines().filter_map(|line| line.parse().ok()).collect(),
        });
        Ok(())
    })?;
    let mut tests = tests.into_inner().expect("workers have ended");
    tests.sort_by_key(|test| test.took);
    Ok(tests)
}

/// Runs the tests that reach a mutant until one fails.
///
/// # Errors
/// When a test cannot be started.
pub fn meet(tests: &[Test], mutant: usize) -> Result<Met> {
    for it in tests.iter().filter(|test| test.reaches.contains(&mutant)) {
        let mut command = test(&it.program, &it.folder, &it.name);
        command.env("KVBATON_MUTANT", mutant.to_string());
        match ends_well(command, LEAST + it.took * TIMES)? {
            Some(true) => {}
            Some(false) => return Ok(Met::Caught),
            None => return Ok(Met::TimedOut),
        }
    }
    Ok(Met::Missed)
}

/// Does `work` for each item on `jobs` threads, until all are done or one fails.
///
/// # Errors
/// The first that `work` returns.
pub fn each<T: Sync>(
    jobs: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<()> + Sync,
) -> Result<()> {
    let rest = Mutex::new(items.iter());
    std::thread::scope(|scope| {
        let worker = || -> Result<()> {
            loop {
                let Some(item) = rest.lock().expect("no worker panics").next() else {
                    return Ok(());
                };
                work(item)?;
            }
        };
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|it| it.join().expect("a worker"))
    })
}

/// One test alone. Inputs of properties are the same in each run, and one that fails is not
/// made small.
fn test(program: &Path, folder: &Path, name: &str) -> Command {
    let mut command = run::command(program);
    command.current_dir(folder).args(["--exact", name, "--test-threads", "1", "--quiet"]);
    command.env("PROPTEST_RNG_SEED", "1").env("PROPTEST_MAX_SHRINK_ITERS", "0");
    command.env("RUST_BACKTRACE", "0").stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Whether it succeeds; `None` when it does not end in time.
fn ends_well(mut command: Command, within: Duration) -> Result<Option<bool>> {
    let begin = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for a test")? {
            return Ok(Some(status.success()));
        }
        if begin.elapsed() > within {
            let _ = child.kill();
            let _ = child.wait();
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
