//! A set of connected queue pairs and what is posted to them.
//!
//! Accounting: a queue pair never has more requests posted than its depth, and a completion
//! queue has room for all of its queue pairs' at once, so neither can overflow. The last
//! request of each batch announces itself; that of an earlier one implies all before it.

use super::batch::{Shape, take_request};
use super::job::{Job, Span, Why};
use crate::keys::RemoteKeys;
use crate::rail::Rail;
use crate::side::{Frames, Outgoing};
use crate::verbs::{
    Channel, Completion, CompletionQueue, QueuePair, SendQueue, Status, VerbsError,
};
use kvbaton_actors::transport::TransportError;
use std::collections::{BTreeMap, VecDeque};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

/// Requests of one batch.
pub(super) const BATCH: usize = 32;

/// The jobs of a link, by their numbers at the peer.
pub(super) type Jobs = BTreeMap<u64, Job>;

/// A request that is posted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flight {
    pub(super) job: u64,
    pub(super) span: Span,
}

/// One queue pair.
pub(super) struct Lane {
    pub(super) pair: QueuePair,
    pub(super) shape: Shape,
    pub(super) depth: usize,
    /// Requests ever posted; those before `done` are over.
    pub(super) posted: u64,
    pub(super) done: u64,
    pub(super) flights: VecDeque<Flight>,
}

impl Lane {
    pub(super) fn room(&self) -> usize {
        self.depth - self.flights.len()
    }
}

/// The completions of one rail's lanes.
pub(super) struct Completions {
    pub(super) rail: Arc<Rail>,
    pub(super) channel: Arc<Channel>,
    pub(super) queue: Arc<CompletionQueue>,
}

/// Why a connection cannot be used any more.
#[derive(Debug, Clone)]
pub(super) struct Broken {
    pub(super) error: TransportError,
    /// Whether it counts as a try of the writes that were under way: not when this side or
    /// the peer cut it off for another write's sake.
    pub(super) counts: bool,
    /// Whether the peer does not answer any more, so that trying again is waiting in vain.
    pub(super) dead: bool,
}

/// Queue pairs to a peer.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) frames: Frames,
    pub(super) out: Outgoing,
    pub(super) heard: Instant,
    pub(super) pinged: Instant,
    // Lanes are dropped before the queues they complete in.
    pub(super) lanes: Vec<Lane>,
    pub(super) completions: Vec<Completions>,
    /// How often each rail of this node had changed when it was made.
    pub(super) rail_changes: Vec<u64>,
    pub(super) batch: SendQueue,
    pub(super) keys: RemoteKeys,
    /// Whether the peer said that it has fenced all of it.
    pub(super) fenced: bool,
    /// Whether a queue that should have had room did not take a request.
    pub(super) congested: bool,
}

/// Request numbers carry the lane.
const LANE_SHIFT: u32 = 56;

impl Connection {
    pub(super) fn socket(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Posts what there is room for, in turns between jobs; true if anything was posted.
    pub(super) fn post(&mut self, jobs: &mut Jobs) -> bool {
        let mut posted = false;
        self.congested = false;
        loop {
            let mut progress = false;
            for (number, job) in jobs.iter_mut() {
                if !job.has_work() || self.congested {
                    continue;
                }
                let roomiest = (0..self.lanes.len()).max_by_key(|lane| self.lanes[*lane].room());
                let Some(lane) = roomiest.filter(|lane| self.lanes[*lane].room() > 0) else {
                    return posted;
                };
                progress |= self.post_batch(*number, job, lane);
            }
            posted |= progress;
            if !progress {
                return posted;
            }
        }
    }

    /// Posts one batch of a job to a lane; true if anything was accepted.
    fn post_batch(&mut self, number: u64, job: &mut Job, index: usize) -> bool {
        let lane = &mut self.lanes[index];
        let most = lane.room().min(BATCH);
        let first = lane.posted;
        let mut count = 0;
        while count < most {
            match take_request(job, &self.keys, &lane.shape) {
                Ok(None) => break,
                Ok(Some(taken)) => {
                    let id = (index as u64) << LANE_SHIFT | (first + count as u64);
                    taken.push(&mut self.batch, id);
                    lane.flights.push_back(Flight { job: number, span: taken.span });
                    count += 1;
                }
                Err(what) => {
                    let peer = job.state.write.session.to_string();
                    let what = what.into();
                    job.end_with(Why::Failed(TransportError::Malformed { peer, what }));
                    break;
                }
            }
        }
        self.batch.signal_last();
        // SAFETY: the job holds the registrations of its sources until each of its requests
        // is over, or its queue pair is destroyed.
        let result = unsafe { self.batch.post(&lane.pair) };
        // What was not accepted goes back, the last one first.
        for _ in result.accepted..count {
            if let Some(flight) = lane.flights.pop_back() {
                job.put_back(flight.span);
            }
        }
        lane.posted += result.accepted as u64;
        job.in_flight += result.accepted;
        match result.refused {
            None => {}
            // The queue has less room than it should: what is in it makes room.
            Some(error) if error.errno() == Some(libc::ENOMEM) => {
                tracing::debug!(%error, "the queue is full");
                self.congested = true;
            }
            Some(error) => {
                // The request is wrong here, so it would be anywhere [F71].
                job.end_with(Why::Failed(error.into()));
            }
        }
        result.accepted > 0
    }

    /// Takes completions in; true if there were any.
    pub(super) fn poll(&mut self, jobs: &mut Jobs) -> Result<bool, Broken> {
        let mut any = false;
        let mut broken = None;
        for at in 0..self.completions.len() {
            let queue = self.completions[at].queue.clone();
            loop {
                let lanes = &mut self.lanes;
                let taken = queue.poll(|completion| {
                    if let Err(why) = take(lanes, completion, jobs) {
                        broken.get_or_insert(why);
                    }
                });
                match taken {
                    Ok(0) => break,
                    Ok(_) => any = true,
                    Err(error) => {
                        return Err(Broken { error: error.into(), counts: true, dead: false });
                    }
                }
            }
        }
        broken.map_or(Ok(any), Err)
    }

    /// Asks every completion queue to ring.
    pub(super) fn arm(&self) -> Result<(), VerbsError> {
        self.completions.iter().try_for_each(|it| {
            it.queue.take_notifications();
            it.queue.arm()
        })
    }

    /// Requests that are not over.
    pub(super) fn in_flight(&self) -> usize {
        self.lanes.iter().map(|lane| lane.flights.len()).sum()
    }
}

/// One completion: what it says of a lane's requests.
fn take(lanes: &mut [Lane], completion: Completion, jobs: &mut Jobs) -> Result<(), Broken> {
    let index = (completion.id >> LANE_SHIFT) as usize;
    let serial = completion.id & ((1 << LANE_SHIFT) - 1);
    let Some(lane) = lanes.get_mut(index) else { return Ok(()) };
    // Of a queue pair that did not stand its trial.
    if lane.pair.number() != completion.queue_pair {
        return Ok(());
    }
    // Requests complete in order: whatever came before this one was carried out.
    while lane.done < serial
        && let Some(flight) = lane.flights.pop_front()
    {
        lane.done += 1;
        carried_out(flight, jobs);
    }
    if lane.done != serial {
        return Ok(());
    }
    let Some(flight) = lane.flights.pop_front() else { return Ok(()) };
    lane.done += 1;
    if completion.status == Status::SUCCESS {
        carried_out(flight, jobs);
        return Ok(());
    }
    let Some(job) = jobs.get_mut(&flight.job) else { return Ok(()) };
    let peer = job.state.write.session.to_string();
    let status = completion.status;
    let reason = format!(
        "an RDMA write ended with \"{}\" (status {}, vendor code {:#x})",
        status.text(),
        status.0,
        completion.vendor_error
    );
    if status.is_local() {
        // The request is wrong here, so it would be on any queue pair [F71].
        let what = format!("writing to {peer}");
        job.end_with(Why::Failed(TransportError::Local { what, reason: reason.clone() }));
    }
    job.give_back(flight.span);
    let counts = status != Status::FLUSHED && !status.is_local();
    Err(Broken { error: TransportError::Disconnected { peer, reason }, counts, dead: false })
}

fn carried_out(flight: Flight, jobs: &mut Jobs) {
    if let Some(job) = jobs.get_mut(&flight.job) {
        job.in_flight -= 1;
        job.left -= flight.span.bytes;
    }
}
