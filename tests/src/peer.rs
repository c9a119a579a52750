//! A process that takes commands as lines of JSON and answers each with one.

use crate::PATIENCE;
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Lines of a peer's stderr that are shown when it fails.
const REMEMBERED_LINES: usize = 30;

/// A running process; killed when dropped.
pub struct Peer {
    name: String,
    child: Child,
    commands: ChildStdin,
    answers: Receiver<String>,
    complaints: Arc<Mutex<VecDeque<String>>>,
}

impl Peer {
    /// Starts a process and returns it with its first line, its greeting.
    ///
    /// # Panics
    /// When it does not start or does not greet in time.
    #[must_use]
    pub fn start(name: &str, mut command: Command) -> (Self, Value) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("{name}: {command:?}: {error}"));
        let commands = child.stdin.take().expect("piped above");
        let answers = lines(child.stdout.take().expect("piped above"));
        let complaints = remember(child.stderr.take().expect("piped above"));
        let mut peer = Self { name: name.into(), child, commands, answers, complaints };
        let greeting = peer.answer(PATIENCE);
        (peer, greeting)
    }

    /// Sends one command and takes its answer.
    ///
    /// # Panics
    /// When no answer comes in time, or it is an error.
    pub fn ask(&mut self, command: Value) -> Value {
        self.send(&command);
        // Longer than the process itself waits, so that it can say what did not happen.
        self.answer(2 * PATIENCE)
    }

    /// Sends one command; its answer is taken later.
    ///
    /// # Panics
    /// When the process has ended.
    pub fn send(&mut self, command: &Value) {
        let sent = writeln!(self.commands, "{command}").and_then(|()| self.commands.flush());
        if let Err(error) = sent {
            self.fail(&format!("does not take {command}: {error}"));
        }
    }

    /// Takes the answer to the oldest command without one.
    ///
    /// # Panics
    /// When none comes within `bound`, or it is an error.
    pub fn answer(&mut self, bound: Duration) -> Value {
        let line = match self.answers.recv_timeout(bound) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => self.fail(&format!("did not answer in {bound:?}")),
            Err(RecvTimeoutError::Disconnected) => self.fail("ended"),
        };
        let answer: Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| self.fail(&format!("said {line:?}: {error}")));
        if let Some(error) = answer.get("error") {
            self.fail(&format!("answered with an error: {error}"));
        }
        answer
    }

    /// Stops the process as a whole (SIGSTOP); returns once it stands still.
    ///
    /// # Panics
    /// When the process has ended.
    pub fn stop(&mut self) {
        self.signal(libc::SIGSTOP);
        let mut status = 0;
        // SAFETY: `status` is a valid place for the status of our own child, which is not
        // waited for elsewhere meanwhile.
        let changed = unsafe { libc::waitpid(self.pid(), &raw mut status, libc::WUNTRACED) };
        if changed != self.pid() || !libc::WIFSTOPPED(status) {
            self.fail("ended instead of stopping");
        }
    }

    /// Lets a stopped process run on (SIGCONT).
    pub fn proceed(&mut self) {
        self.signal(libc::SIGCONT);
    }

    /// Kills the process (SIGKILL) and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn pid(&self) -> libc::pid_t {
        libc::pid_t::try_from(self.child.id()).expect("process ids are pid_t")
    }

    fn signal(&mut self, signal: libc::c_int) {
        // SAFETY: the child is not reaped before it is dropped or killed here, so its id is
        // still its own.
        let result = unsafe { libc::kill(self.pid(), signal) };
        if result != 0 {
            self.fail(&format!("takes no signal {signal}"));
        }
    }

    fn fail(&mut self, what: &str) -> ! {
        let complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        let complaints: Vec<&str> = complaints.iter().map(String::as_str).collect();
        panic!("{} {what}; its last words:\n{}", self.name, complaints.join("\n"));
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Lines of a stream, as they come.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// The last lines of a stream.
fn remember(stream: impl Read + Send + 'static) -> Arc<Mutex<VecDeque<String>>> {
    let kept = Arc::new(Mutex::new(VecDeque::new()));
    let keep = kept.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let mut kept = keep.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() == REMEMBERED_LINES {
                kept.pop_front();
            }
            kept.push_back(line);
        }
    });
    kept
}
