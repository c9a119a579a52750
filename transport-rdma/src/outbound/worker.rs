//! The thread of a link: connects, asks, posts, polls, and mends.

use super::connect::{Failure, connect};
use super::connection::{Broken, Connection, Jobs};
use super::job::{Job, Standing, Why, destinations};
use super::link::Link;
use super::mend::end;
use crate::keys::RemoteKeys;
use crate::plane::Shared;
use crate::side::{Ended, wait};
use crate::wire::{MAX_RANGES, ToReceiver, ToSender};
use kvbaton_actors::transport::{Rejection, TransportError};
use kvbaton_core::ids::Grant;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a link's thread owns.
pub(super) struct Worker {
    pub(super) link: Arc<Link>,
    pub(super) shared: Arc<Shared>,
    pub(super) jobs: Jobs,
    pub(super) next: u64,
    pub(super) connection: Option<Connection>,
    pub(super) idle_since: Instant,
    /// Failed tries in a row, and until when the next one waits.
    pub(super) tries: u32,
    pub(super) pause_until: Option<Instant>,
}

/// How often an idle connection says that it lives.
const IDLE_PING: Duration = Duration::from_secs(15);
/// First pause between two tries; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

impl Worker {
    pub(super) fn new(link: Arc<Link>, shared: Arc<Shared>) -> Self {
        Self {
            link,
            shared,
            jobs: Jobs::new(),
            next: 0,
            connection: None,
            idle_since: Instant::now(),
            tries: 0,
            pause_until: None,
        }
    }

    pub(super) fn run(mut self) {
        loop {
            self.link.clear_wake();
            self.take_new();
            if self.shared.is_closed() {
                break;
            }
            if self.jobs.is_empty() && self.is_done() {
                break;
            }
            if let Err(broken) = self.step() {
                self.mend(broken);
            }
        }
        self.finish();
    }

    /// Takes in the writes that came.
    fn take_new(&mut self) {
        for state in self.link.take_new() {
            self.next += 1;
            self.jobs.insert(self.next, Job::new(state));
        }
        // Those that were asked to end while nothing of them was posted have ended.
        self.jobs.retain(|_, job| !job.state.has_ended());
        if !self.jobs.is_empty() {
            self.idle_since = Instant::now();
        }
    }

    /// Whether the link may end: closed from outside, or idle for long.
    fn is_done(&self) -> bool {
        if self.idle_since.elapsed() >= self.shared.config.idle_timeout {
            return self.link.close_if_idle();
        }
        self.link.is_closed()
    }

    /// One turn with everything that can be done now; then waits for more.
    fn step(&mut self) -> Result<(), Broken> {
        let now = Instant::now();
        if self.connection.is_none() {
            if self.jobs.is_empty() {
                self.sleep(self.shared.config.idle_timeout);
            } else if let Some(until) = self.pause_until.filter(|until| *until > now) {
                self.sleep(until - now);
            } else {
                self.try_connect();
            }
            return Ok(());
        }
        let spin_until = now + self.shared.config.spin;
        loop {
            let mut progress = self.listen()?;
            self.ask();
            progress |= self.end_what_ends()?;
            if let Some(connection) = &mut self.connection {
                progress |= connection.post(&mut self.jobs);
                progress |= connection.poll(&mut self.jobs)?;
                progress |= self.end_what_ends()?;
            }
            if let Some(connection) = &mut self.connection {
                connection.out.flush(connection.socket()).map_err(|it| gone(&self.link, it))?;
            }
            if progress {
                return Ok(());
            }
            if self.jobs.is_empty() || Instant::now() >= spin_until {
                break;
            }
            std::hint::spin_loop();
        }
        self.check_liveness()?;
        self.check_rails()?;
        // What completed between the last poll and this rings no bell: look once more.
        if let Some(connection) = &mut self.connection {
            connection.arm().map_err(|error| Broken {
                error: error.into(),
                counts: true,
                dead: false,
            })?;
            if connection.poll(&mut self.jobs)? {
                return Ok(());
            }
        }
        self.sleep(self.patience());
        Ok(())
    }

    /// Takes in what the peer says; true if it said anything.
    fn listen(&mut self) -> Result<bool, Broken> {
        let Some(connection) = &mut self.connection else { return Ok(false) };
        let received = connection.frames.fill(connection.socket());
        let mut heard = false;
        let mut stops: Vec<Grant> = Vec::new();
        // Also what came before the end of the connection.
        while let Some(frame) = match connection.frames.next() {
            Ok(frame) => frame,
            Err(ended) => return Err(gone(&self.link, ended)),
        } {
            heard = true;
            connection.heard = Instant::now();
            let frame = match ToSender::decode(frame) {
                Ok(frame) => frame,
                Err(what) => return Err(gone(&self.link, Ended::Foreign(what))),
            };
            match frame {
                ToSender::Opened { number, verdict } => {
                    let asked = self.jobs.get_mut(&number);
                    let Some(job) = asked.filter(|job| job.standing == Standing::Asked) else {
                        continue;
                    };
                    match verdict {
                        Ok(()) => job.standing = Standing::Admitted,
                        Err(why) => {
                            // The peer keeps no write of that number.
                            job.standing = Standing::New;
                            job.end_with(Why::Refused(why));
                        }
                    }
                }
                ToSender::Stop(grant) => stops.push(grant),
                ToSender::Fenced => connection.fenced = true,
                ToSender::Pong(_) | ToSender::Accept { .. } | ToSender::Refuse { .. } => {}
            }
        }
        for job in self.jobs.values_mut() {
            if job.state.write.grant.is_some_and(|grant| stops.contains(&grant)) {
                job.end_with(Why::Refused(Rejection::UnknownGrant));
            }
        }
        let fenced = self.connection.as_ref().is_some_and(|it| it.fenced);
        match received {
            Err(ended) => {
                let broken = gone(&self.link, ended);
                Err(Broken { counts: !fenced, ..broken })
            }
            Ok(_) if fenced => {
                let reason = "it cut the queue pairs off".into();
                Err(Broken { counts: false, ..gone(&self.link, Ended::Broken(reason)) })
            }
            Ok(_) => Ok(heard),
        }
    }

    /// Asks the peer about writes that are new.
    fn ask(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        for (number, job) in &mut self.jobs {
            if job.standing != Standing::New || job.ending.is_some() {
                continue;
            }
            // One that has ended is dropped at the next turn.
            let Some(sources) = job.state.activate() else { continue };
            job.sources = sources;
            let grant = job.state.write.grant.unwrap_or_default();
            destinations(&job.state.write.copies, MAX_RANGES, |ranges, last| {
                let frame = ToReceiver::Open { number: *number, grant, last, ranges };
                frame.put(&mut connection.out.bytes);
            });
            job.standing = Standing::Asked;
        }
    }

    /// Ends writes that are over, and those that are to end once nothing of them is in
    /// flight; true if one ended. `Err` when one has to be cut off.
    fn end_what_ends(&mut self) -> Result<bool, Broken> {
        let now = Instant::now();
        let mut over = Vec::new();
        let mut cut = None;
        for (number, job) in &mut self.jobs {
            if let Some(stop) = job.state.stopped() {
                job.end_with(Why::Failed(stop.error.clone()));
                if stop.at_once && job.in_flight > 0 {
                    cut = Some(stop.error);
                }
            }
            if let Some(why) = &job.ending {
                let cut_at = *job.cut_at.get_or_insert(now + self.shared.config.grace);
                if job.in_flight > 0 && now >= cut_at {
                    cut = Some(match why {
                        Why::Failed(error) => error.clone(),
                        Why::Refused(why) => TransportError::Refused {
                            peer: self.link.session.to_string(),
                            what: why.to_string(),
                        },
                    });
                }
            }
            let done = job.left == 0 || job.ending.is_some();
            if done && job.in_flight == 0 {
                over.push(*number);
            }
        }
        let ended = !over.is_empty();
        for number in over {
            let Some(job) = self.jobs.remove(&number) else { continue };
            // Before the outcome is told, so that it is on its way before the peer's engine
            // hears of it.
            if let Some(connection) = &mut self.connection {
                if job.standing != Standing::New {
                    let bytes = job.state.total - job.left;
                    ToReceiver::Close { number, bytes }.put(&mut connection.out.bytes);
                }
                connection.out.flush(connection.socket()).map_err(|it| gone(&self.link, it))?;
            }
            end(job);
        }
        match cut {
            Some(error) => Err(Broken { error, counts: false, dead: false }),
            None => Ok(ended),
        }
    }

    /// A silent peer is given up while a write is under way.
    fn check_liveness(&mut self) -> Result<(), Broken> {
        let dead_after = self.shared.config.dead_after;
        let busy = !self.jobs.is_empty();
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let now = Instant::now();
        let every = if busy { dead_after / 4 } else { IDLE_PING };
        if now.duration_since(connection.pinged) >= every {
            if !busy || now.duration_since(connection.pinged) > dead_after {
                // Nothing was asked meanwhile, so its silence means nothing.
                connection.heard = now;
            }
            connection.pinged = now;
            ToReceiver::Ping(0).put(&mut connection.out.bytes);
        }
        if busy && now.duration_since(connection.heard) > dead_after {
            let (peer, what) = (self.link.session.to_string(), "answering on its side channel");
            let error = TransportError::TimedOut { peer, what, after: dead_after };
            return Err(Broken { error, counts: true, dead: true });
        }
        Ok(())
    }

    /// A rail whose port went down or has another address is left at once; one that came
    /// back is taken up when nothing is under way.
    fn check_rails(&mut self) -> Result<(), Broken> {
        let Some(connection) = &self.connection else { return Ok(()) };
        let used = |rail: usize| connection.completions.iter().any(|it| it.rail.index == rail);
        let idle = self.jobs.is_empty();
        let changed = self
            .shared
            .rails
            .iter()
            .zip(&connection.rail_changes)
            .find(|(rail, seen)| rail.changes() != **seen && (idle || used(rail.index)));
        let Some((rail, _)) = changed else { return Ok(()) };
        let reason = format!("the port of {} changed", rail.name());
        let peer = self.link.session.to_string();
        let error = TransportError::Disconnected { peer, reason };
        Err(Broken { error, counts: false, dead: false })
    }

    fn sleep(&mut self, at_most: Duration) {
        let bells = self.connection.iter().flat_map(|it| {
            let channels = it.completions.iter().map(|it| it.channel.fd());
            channels.chain([it.socket()])
        });
        let writable = self.connection.as_ref().filter(|it| !it.out.is_empty());
        let writable = writable.map(Connection::socket);
        let readable = bells.chain([self.link.wake_fd(), self.shared.closing.fd()]);
        if let Err(error) = wait(readable, writable, at_most) {
            tracing::error!(%error, "waiting failed");
            std::thread::yield_now();
        }
    }

    /// How long nothing may happen before something is due.
    fn patience(&self) -> Duration {
        let config = &self.shared.config;
        let now = Instant::now();
        let mut due = if self.jobs.is_empty() {
            IDLE_PING.min(config.idle_timeout)
        } else {
            config.dead_after / 8
        };
        if self.connection.as_ref().is_some_and(|it| it.congested) {
            due = due.min(Duration::from_millis(1));
        }
        for cut_at in self.jobs.values().filter_map(|job| job.cut_at) {
            due = due.min(cut_at.saturating_duration_since(now));
        }
        due.max(Duration::from_micros(10))
    }

    fn try_connect(&mut self) {
        let Some(first) = self.jobs.values().next() else { return };
        let keys = match RemoteKeys::decode(&first.state.write.keys) {
            Ok(keys) => keys,
            Err(what) => {
                let (peer, what) = (self.link.session.to_string(), what.into());
                let error = TransportError::Malformed { peer, what };
                return self.fail_all(&Why::Failed(error));
            }
        };
        let (session, generation) = (self.link.session.clone(), self.link.generation);
        match connect(&self.shared, &session, generation, keys) {
            Ok(connection) => {
                tracing::debug!(%session, lanes = connection.lanes.len(), "connected");
                self.connection = Some(connection);
                self.pause_until = None;
                // Whatever went before was fenced by the peer.
                for job in self.jobs.values_mut() {
                    job.unsettled = false;
                }
                self.tries = 0;
            }
            Err(Failure::Rejected(why)) => self.fail_all(&Why::Refused(why)),
            Err(Failure::Final(error)) => self.fail_all(&Why::Failed(error)),
            Err(Failure::Again(error)) => self.try_later(error),
        }
    }

    /// Another try after a pause, unless there were enough.
    fn try_later(&mut self, error: TransportError) {
        self.tries += 1;
        if self.tries > self.shared.config.retries {
            self.tries = 0;
            return self.fail_all(&Why::Failed(error));
        }
        tracing::debug!(peer = %self.link.session, %error, tries = self.tries, "tries again");
        let pause = FIRST_PAUSE.saturating_mul(1 << (self.tries - 1).min(10));
        self.pause_until = Some(Instant::now() + pause);
    }

    pub(super) fn fail_all(&mut self, why: &Why) {
        for (_, mut job) in std::mem::take(&mut self.jobs) {
            job.end_with(why.clone());
            end(job);
        }
    }
}

/// The side channel has ended.
fn gone(link: &Link, ended: Ended) -> Broken {
    let peer = link.session.to_string();
    let error = match ended {
        Ended::Broken(reason) => TransportError::Disconnected { peer, reason },
        Ended::Foreign(what) => TransportError::Malformed { peer, what: what.into() },
    };
    Broken { error, counts: true, dead: false }
}
