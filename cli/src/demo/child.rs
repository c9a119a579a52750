//! One engine process, as its parent holds it.

use super::message::{FromEngine, ToEngine};
use crate::engine::EngineSpec;
use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child as Process, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lines of stderr that are kept.
const TAIL: usize = 20;
/// Longest line that is kept of stderr, in bytes.
const TAIL_LINE: usize = 500;

/// Something from an engine process.
#[derive(Debug)]
pub struct Heard {
    /// Which place in the fleet.
    pub slot: usize,
    /// Which of the processes that were started for that place.
    pub life: u32,
    /// What.
    pub what: What,
}

/// What was heard.
#[derive(Debug)]
pub enum What {
    /// A message.
    Said(FromEngine),
    /// A line that is none.
    Garbled(String),
    /// Its stdout ended: it is dead or about to be.
    Gone,
}

/// A running engine process. Dropping it kills it.
#[derive(Debug)]
pub struct Child {
    process: Process,
    stdin: Option<ChildStdin>,
    tail: Arc<Mutex<VecDeque<String>>>,
    stderr: Option<JoinHandle<()>>,
}

impl Child {
    /// Starts one by running this program again; what it says goes to `heard`.
    ///
    /// # Errors
    /// When the program cannot be started again.
    pub fn start(spec: &EngineSpec, slot: usize, life: u32, heard: Sender<Heard>) -> Result<Self> {
        let program = std::env::current_exe().context("where is this program?")?;
        let mut process = Command::new(&program)
            .args(["engine", &spec.to_json()?])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let stdin = process.stdin.take();
        let stdout = process.stdout.take().context("its stdout is piped")?;
        let stderr = process.stderr.take().context("its stderr is piped")?;
        let tail = Arc::<Mutex<VecDeque<String>>>::default();
        let kept = tail.clone();
        std::thread::spawn(move || listen(stdout, slot, life, &heard));
        let stderr = std::thread::spawn(move || keep_tail(stderr, &kept));
        Ok(Self { process, stdin, tail, stderr: Some(stderr) })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Tells it something. A process that is gone hears nothing; [`What::Gone`] says so.
    pub fn tell(&mut self, what: &ToEngine) {
        let Some(stdin) = &mut self.stdin else { return };
        let Ok(mut line) = serde_json::to_string(what) else { return };
        line.push('\n');
        if stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()).is_err() {
            self.stdin = None;
        }
    }

    /// Kills it (SIGKILL) and waits for its end.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        let _ = self.process.kill();
        self.process.wait().ok()
    }

    /// Waits for its end; kills it when it takes longer than `bound`.
    pub fn end(&mut self, bound: Duration) -> Option<ExitStatus> {
        self.stdin = None;
        let until = Instant::now() + bound;
        while Instant::now() < until {
            if let Ok(Some(status)) = self.process.try_wait() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.kill();
        None
    }

    /// The last lines of its stderr. Call it once the process has ended to have them all.
    #[must_use]
    pub fn tail(&mut self) -> Vec<String> {
        if matches!(self.process.try_wait(), Ok(Some(_)))
            && let Some(thread) = self.stderr.take()
        {
            let _ = thread.join();
        }
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

fn listen(stdout: impl Read, slot: usize, life: u32, heard: &Sender<Heard>) {
    let said = |line: String| match serde_json::from_str(&line) {
        Ok(message) => What::Said(message),
        Err(_) => What::Garbled(line),
    };
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        if heard.send(Heard { slot, life, what: said(line) }).is_err() {
            return;
        }
    }
    let _ = heard.send(Heard { slot, life, what: What::Gone });
}

fn keep_tail(stderr: impl Read, tail: &Mutex<VecDeque<String>>) {
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line[..line.len().min(TAIL_LINE)]).into_owned();
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.push_back(line);
        if tail.len() > TAIL {
            tail.pop_front();
        }
    }
}
