//! How soon an aborted load's blocks are back, whatever its P does.

use super::pair::{D, P, Pair};
use crate::demo::message::{FromEngine, ToEngine};
use crate::engine::Notice;
use anyhow::{Result, ensure};
use std::time::Duration;

/// What P does while D aborts its load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// It writes.
    Writes,
    /// It has not prefilled the request.
    Waits,
    /// It stands still (SIGSTOP).
    Stopped,
    /// It was killed just before.
    Dead,
}

impl Peer {
    pub const ALL: [Self; 4] = [Self::Writes, Self::Waits, Self::Stopped, Self::Dead];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Writes => "alive, writing",
            Self::Waits => "alive, before its prefill",
            Self::Stopped => "stopped",
            Self::Dead => "dead",
        }
    }
}

/// Until the abort: a load of the default size is being written then.
const MEANWHILE: Duration = Duration::from_millis(2);

/// Aborts one load; `None` when it was over before.
pub fn abort(pair: &mut Pair, peer: Peer) -> Result<Option<Duration>> {
    let number = pair.number();
    if peer != Peer::Waits {
        pair.hold(number)?;
    }
    pair.submit(D, number);
    std::thread::sleep(MEANWHILE);
    match peer {
        Peer::Stopped => signal(pair, libc::SIGSTOP)?,
        Peer::Dead => {
            pair.fleet.kill_and_restart(P)?;
        }
        Peer::Writes | Peer::Waits => {}
    }
    pair.fleet.tell(D, &ToEngine::Abort { request: format!("d{number}") });
    let (mut over, mut answered) = (false, false);
    let took = pair.wait("blocks", |slot, said| {
        match said {
            FromEngine::Notice(Notice::Loaded { .. } | Notice::LoadFailed { .. }) if !answered => {
                over = true;
            }
            FromEngine::Notice(Notice::Answer { .. }) if slot == D => answered = true,
            FromEngine::Notice(Notice::BlocksBack { took, .. }) => return Some(Some(*took)),
            _ => {}
        }
        // It has ended by itself: there is nothing to abort.
        (over && answered).then_some(None)
    })?;
    match peer {
        Peer::Stopped => signal(pair, libc::SIGCONT)?,
        Peer::Dead => pair.fleet.wait_ready()?,
        Peer::Writes | Peer::Waits => {}
    }
    pair.fleet.tell(P, &ToEngine::Abort { request: format!("p{number}") });
    Ok(took.filter(|_| !over).map(Duration::from_nanos))
}

fn signal(pair: &Pair, signal: i32) -> Result<()> {
    let pid = i32::try_from(pair.fleet.pid(P))?;
    // SAFETY: it touches no memory of this process; the child has not been waited for, so the
    // number is its.
    let sent = unsafe { libc::kill(pid, signal) };
    ensure!(sent == 0, "the prefill cannot be signalled");
    Ok(())
}
