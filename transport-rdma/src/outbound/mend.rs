//! Retiring what broke: queue pairs are never reset, their writes go over new ones `[F71]`.

use super::connection::{Broken, Connection, Jobs};
use super::job::{Job, Standing, Why};
use super::worker::Worker;
use crate::side::wait;
use crate::wire::{ToReceiver, ToSender};
use kvbaton_actors::transport::{TransportError, WriteOutcome};
use std::time::{Duration, Instant};

/// How long a failed queue pair's flush is waited for; destroying it comes after that.
const FLUSH: Duration = Duration::from_millis(250);

impl Worker {
    /// Retires a broken connection and decides what becomes of its writes.
    pub(super) fn mend(&mut self, broken: Broken) {
        tracing::debug!(peer = %self.link.session, error = %broken.error, "queue pairs are retired");
        let Some(mut connection) = self.connection.take() else { return };
        self.retire(&mut connection);
        // One that did not answer for so long does not answer this either.
        let fenced = connection.fenced || !broken.dead && self.await_fence(&mut connection);
        drop(connection);
        let (config, mut kept) = (&self.shared.config, Jobs::new());
        for (number, mut job) in std::mem::take(&mut self.jobs) {
            // Its queue pairs are gone, so nothing of it is read any more; whether it can
            // still land is what the peer has to say.
            job.unsettled |= !fenced && std::mem::take(&mut job.hurt);
            job.sources.clear();
            if let Some(stop) = job.state.stopped() {
                job.end_with(Why::Failed(stop.error));
            }
            if broken.counts {
                job.retries += 1;
                if job.retries > config.retries || broken.dead {
                    job.end_with(Why::Failed(broken.error.clone()));
                }
            }
            job.standing = Standing::New;
            let again = job.left > 0 && job.ending.is_none();
            if again && job.state.requeue(job.unsettled) {
                kept.insert(number, job);
            } else {
                if let Some(stop) = job.state.stopped() {
                    job.end_with(Why::Failed(stop.error));
                }
                end(job);
            }
        }
        self.jobs = kept;
    }

    /// Ends every queue pair of a connection here.
    fn retire(&mut self, connection: &mut Connection) {
        for lane in &connection.lanes {
            if let Err(error) = lane.pair.fail() {
                tracing::debug!(%error, "it is destroyed instead");
            }
        }
        let until = Instant::now() + FLUSH;
        while connection.in_flight() > 0 && Instant::now() < until {
            let polled = connection.poll(&mut self.jobs);
            let bells = || connection.completions.iter().map(|it| it.channel.fd());
            // Flushes say that it is broken, which is known.
            if matches!(polled, Ok(false)) {
                if connection.arm().is_err() {
                    break;
                }
                // Failing to wait is answered by looking again.
                let _ = wait(bells(), None, Duration::from_millis(1));
            }
        }
        let lost: Vec<_> = connection.lanes.iter().flat_map(|it| it.flights.clone()).collect();
        // Destroys them: nothing is read for what was not flushed.
        connection.lanes.clear();
        for flight in lost.into_iter().rev() {
            if let Some(job) = self.jobs.get_mut(&flight.job) {
                job.give_back(flight.span);
            }
        }
    }

    /// Asks the peer to fence, and waits for its word as long as for a peer that may be dead.
    fn await_fence(&self, connection: &mut Connection) -> bool {
        ToReceiver::Bye.put(&mut connection.out.bytes);
        let config = &self.shared.config;
        let until = Instant::now() + config.dead_after.max(config.grace);
        let socket = connection.socket();
        while !connection.fenced {
            while let Ok(Some(frame)) = connection.frames.next() {
                connection.fenced |= matches!(ToSender::decode(frame), Ok(ToSender::Fenced));
            }
            let left = until.saturating_duration_since(Instant::now());
            if connection.fenced || left.is_zero() {
                break;
            }
            if connection.out.flush(socket).is_err() {
                // It may have said so before it closed.
                if !matches!(connection.frames.fill(socket), Ok(true)) {
                    break;
                }
                continue;
            }
            match connection.frames.fill(socket) {
                Ok(true) => {}
                Ok(false) => {
                    let writable = (!connection.out.is_empty()).then_some(socket);
                    if wait([socket], writable, left).is_err() {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        connection.fenced
    }

    /// The thread ends: so does everything that it was to do.
    pub(super) fn finish(mut self) {
        let peer = self.link.session.to_string();
        let error = TransportError::Cancelled { peer };
        for state in self.link.close() {
            state.stop(error.clone(), true);
        }
        for job in self.jobs.values_mut() {
            job.end_with(Why::Failed(error.clone()));
        }
        if self.connection.is_some() {
            self.mend(Broken { error: error.clone(), counts: false, dead: true });
        }
        self.fail_all(&Why::Failed(error));
    }
}

/// Tells how a write ended.
pub(super) fn end(mut job: Job) {
    // Lets go of the memory first.
    job.sources.clear();
    let outcome = match job.ending {
        _ if job.left == 0 => WriteOutcome::Written,
        Some(Why::Refused(why)) if !job.unsettled => WriteOutcome::Rejected(why),
        Some(Why::Refused(why)) => {
            let (peer, what) = (job.state.write.session.to_string(), why.to_string());
            let error = TransportError::Refused { peer, what };
            WriteOutcome::Failed { error, settled: false }
        }
        Some(Why::Failed(error)) => WriteOutcome::Failed { error, settled: !job.unsettled },
        None => {
            let peer = job.state.write.session.to_string();
            let error = TransportError::Cancelled { peer };
            WriteOutcome::Failed { error, settled: !job.unsettled }
        }
    };
    job.state.end(outcome);
}
