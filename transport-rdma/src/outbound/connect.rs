//! Connecting: the side channel, the exchange of queue pairs, and a trial write over each.

use super::batch::Shape;
use super::connection::{BATCH, Completions, Connection, Lane};
use crate::keys::RemoteKeys;
use crate::plane::Shared;
use crate::rail::{Place, Rail};
use crate::side::{Ended, Frames, Outgoing, wait};
use crate::verbs::{
    Channel, CompletionQueue, Endpoint, QueuePair, QueueSizes, SendQueue, Status, VerbsError,
    WritePiece,
};
use crate::wire::{AcceptedEndpoint, Connect, MAGIC, Refusal, ToReceiver, ToSender};
use kvbaton_actors::transport::{Rejection, TransportError};
use kvbaton_core::ids::{Generation, SessionAddress};
use kvbaton_transport_tcp::data::{hello, net};
use std::collections::VecDeque;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// Why there is no connection.
pub(super) enum Failure {
    /// The peer does not have that registration any more.
    Rejected(Rejection),
    /// Another try may help.
    Again(TransportError),
    /// It would not.
    Final(TransportError),
}

/// A queue pair in the making.
struct Half {
    pair: QueuePair,
    rail: Arc<Rail>,
    place: Place,
    first_packet: u32,
}

/// Connects queue pairs to a peer's registration. Its writes to here before this one are
/// fenced there once it returned.
pub(super) fn connect(
    shared: &Shared,
    session: &SessionAddress,
    generation: Generation,
    keys: RemoteKeys,
) -> Result<Connection, Failure> {
    let config = &shared.config;
    let deadline = Instant::now() + config.connect_timeout;
    let rail_changes = shared.rails.iter().map(|rail| rail.changes()).collect();
    let (halves, completions) = make_halves(shared).map_err(|e| Failure::Again(e.into()))?;
    let peer = session.to_string();
    let stream = dial(shared, session, &peer, deadline).map_err(Failure::Final)?;
    let attempt = shared.attempts.fetch_add(1, SeqCst);
    let endpoint = |half: &Half| Endpoint {
        number: half.pair.number(),
        first_packet: half.first_packet,
        gid: half.place.gid.gid,
        lid: half.place.port.lid,
        mtu: half.place.port.mtu,
    };
    let endpoints = halves.iter().map(endpoint).collect();
    let ask = Connect { instance: shared.instance, attempt, generation, endpoints };
    let mut bytes = MAGIC.to_vec();
    ToReceiver::Connect(ask).put(&mut bytes);
    net::send_all(stream.as_raw_fd(), &bytes, deadline)
        .map_err(|error| Failure::Again(disconnected(&peer, error.to_string())))?;
    let mut frames = Frames::default();
    let accepted = answer(&stream, &mut frames, &peer, attempt, deadline, shared)?;
    if accepted.len() != halves.len() {
        let what = "an answer with another number of queue pairs".into();
        return Err(Failure::Final(TransportError::Malformed { peer, what }));
    }
    if accepted.iter().any(|it| usize::from(it.rail) >= keys.rails) {
        let what = "a queue pair on a rail that its keys do not know".into();
        return Err(Failure::Final(TransportError::Malformed { peer, what }));
    }
    let mut connected = Vec::new();
    for (half, accepted) in halves.into_iter().zip(accepted) {
        let Half { pair, rail, place, first_packet } = half;
        let own = &place.gid;
        pair.connect(&place.port, own, first_packet, &accepted.endpoint, config.timing)
            .map_err(|error| Failure::Again(error.into()))?;
        let sizes = pair.sizes();
        let shape = Shape {
            rail: rail.index,
            remote_rail: accepted.rail.into(),
            pieces: sizes.pieces as usize,
            bytes: config.request_bytes.min(place.port.max_message.max(4096)).into(),
            inline: sizes.inline.min(config.inline_bytes),
        };
        let (depth, flights) =
            (sizes.depth as usize, VecDeque::with_capacity(sizes.depth as usize));
        let lane = Lane { pair, shape, depth, posted: 0, done: 0, flights };
        connected.push(Trial { lane, rail, accepted, outcome: None });
    }
    let lanes = try_out(connected, &completions, &peer, deadline)?;
    let pieces = lanes.iter().map(|lane| lane.shape.pieces).max().unwrap_or(1);
    let now = Instant::now();
    Ok(Connection {
        stream,
        frames,
        out: Outgoing::default(),
        heard: now,
        pinged: now,
        lanes,
        completions,
        rail_changes,
        batch: SendQueue::new(BATCH, pieces),
        keys,
        fenced: false,
        congested: false,
    })
}

fn disconnected(peer: &str, reason: String) -> TransportError {
    TransportError::Disconnected { peer: peer.into(), reason }
}

/// Opens the side channel to an allowed address `[Z05]` and proves the key `[Z04]`.
fn dial(
    shared: &Shared,
    session: &SessionAddress,
    peer: &str,
    deadline: Instant,
) -> Result<TcpStream, TransportError> {
    const BUFFER: usize = 256 << 10;
    let config = &shared.config;
    let check = |ip| (config.check_address)(ip);
    let found = net::resolve(&session.host, session.port, check, &config.allowed_networks)?;
    let unreachable = |error: std::io::Error| TransportError::Unreachable {
        peer: peer.into(),
        reason: error.to_string(),
    };
    let stream = net::connect(&found, BUFFER, deadline).map_err(unreachable)?;
    stream.set_nonblocking(true).map_err(unreachable)?;
    hello::greet(stream.as_raw_fd(), config.cluster_key.as_ref(), peer, deadline).map_err(
        |error| {
            if Instant::now() < deadline {
                return error;
            }
            let (what, after) = ("greeting on its side channel", config.connect_timeout);
            TransportError::TimedOut { peer: peer.into(), what, after }
        },
    )?;
    Ok(stream)
}

/// Queue pairs on every rail that works, in the state INIT.
fn make_halves(shared: &Shared) -> Result<(Vec<Half>, Vec<Completions>), VerbsError> {
    let mut rails = Vec::new();
    let mut down = None;
    for rail in &shared.rails {
        match rail.place() {
            Ok(place) => rails.push((rail, place)),
            Err(error) => down = Some(error),
        }
    }
    if rails.is_empty() {
        return Err(down.unwrap_or(VerbsError::NoDevice));
    }
    let pairs = shared.config.queue_pairs.max(rails.len());
    let mut halves = Vec::new();
    let mut completions = Vec::new();
    for (at, (rail, place)) in rails.iter().enumerate() {
        let share = pairs / rails.len() + usize::from(at < pairs % rails.len());
        let sizes = sizes_on(rail, shared);
        let channel = Channel::new(rail.context())?;
        let entries = share as u32 * sizes.depth;
        let queue = CompletionQueue::new(&channel, entries)?;
        for _ in 0..share {
            // What a device takes inline is found out by asking.
            let pair = QueuePair::new(&rail.domain, &queue, sizes).or_else(|error| {
                let without = QueueSizes { inline: 0, ..sizes };
                if sizes.inline == 0 {
                    return Err(error);
                }
                QueuePair::new(&rail.domain, &queue, without)
            })?;
            pair.initialize(&place.port, false)?;
            let first_packet = rand::random::<u32>() & 0xff_ffff;
            halves.push(Half { pair, rail: (*rail).clone(), place: *place, first_packet });
        }
        completions.push(Completions { rail: (*rail).clone(), channel, queue });
    }
    Ok((halves, completions))
}

/// What is configured, as far as the device takes it.
fn sizes_on(rail: &Rail, shared: &Shared) -> QueueSizes {
    let (config, limits) = (&shared.config, rail.context().limits());
    let pairs = config.queue_pairs.max(1) as u32;
    QueueSizes {
        depth: config.queue_depth.min(limits.max_qp_wr).min(limits.max_cqe / pairs).max(1),
        pieces: config.pieces_per_request.min(limits.max_sge).max(1),
        inline: config.inline_bytes,
    }
}

/// A lane that is being tried.
struct Trial {
    lane: Lane,
    rail: Arc<Rail>,
    accepted: AcceptedEndpoint,
    outcome: Option<Status>,
}

/// Waits for the peer's answer to this attempt; one to another is dropped `[F70]`.
fn answer(
    stream: &TcpStream,
    frames: &mut Frames,
    peer: &str,
    attempt: u64,
    deadline: Instant,
    shared: &Shared,
) -> Result<Vec<AcceptedEndpoint>, Failure> {
    let foreign = |what: &str| {
        Failure::Final(TransportError::Malformed { peer: peer.into(), what: what.into() })
    };
    let ended = |ended| match ended {
        Ended::Broken(reason) => Failure::Again(disconnected(peer, reason)),
        Ended::Foreign(what) => foreign(what),
    };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let Some(frame) = frames.next().map_err(ended)? else {
            if left.is_zero() {
                let (what, after) = ("connecting queue pairs", shared.config.connect_timeout);
                let peer = peer.into();
                return Err(Failure::Final(TransportError::TimedOut { peer, what, after }));
            }
            wait([stream.as_raw_fd(), shared.closing.fd()], None, left)
                .map_err(|error| Failure::Again(disconnected(peer, error.to_string())))?;
            if shared.is_closed() {
                return Err(Failure::Final(TransportError::Cancelled { peer: peer.into() }));
            }
            frames.fill(stream.as_raw_fd()).map_err(ended)?;
            continue;
        };
        match ToSender::decode(frame).map_err(foreign)? {
            ToSender::Accept { attempt: of, endpoints } if of == attempt => return Ok(endpoints),
            ToSender::Refuse { attempt: of, why, text } if of == attempt => {
                return Err(match why {
                    Refusal::StaleGeneration => Failure::Rejected(Rejection::StaleGeneration),
                    Refusal::Late => {
                        let reason = "a later connection of this node took its place".into();
                        Failure::Again(disconnected(peer, reason))
                    }
                    Refusal::Resources => {
                        Failure::Again(TransportError::Refused { peer: peer.into(), what: text })
                    }
                });
            }
            // Of another attempt, or of a connection that this is not yet.
            _ => {}
        }
    }
}

/// Writes eight bytes over each queue pair and keeps those over which they arrived: a pair
/// of devices that do not reach each other is noticed here and not by a write `[F68]`.
fn try_out(
    mut trials: Vec<Trial>,
    completions: &[Completions],
    peer: &str,
    deadline: Instant,
) -> Result<Vec<Lane>, Failure> {
    const LOOK_AGAIN: Duration = Duration::from_millis(10);
    let mut batch = SendQueue::new(1, 1);
    for trial in &mut trials {
        let (address, key) = (trial.rail.scratch.address(), trial.rail.scratch.local_key());
        let piece = WritePiece { address, len: 8, key };
        let (remote, remote_key) = (trial.accepted.scratch, trial.accepted.scratch_key);
        batch.push(0, &[piece], remote, remote_key, trial.lane.shape.inline >= 8);
        batch.signal_last();
        // SAFETY: the rail's scratch bytes are registered for as long as the rail lives.
        let posted = unsafe { batch.post(&trial.lane.pair) };
        if let Some(error) = posted.refused {
            return Err(Failure::Again(error.into()));
        }
        (trial.lane.posted, trial.lane.done) = (1, 1);
    }
    while trials.iter().any(|trial| trial.outcome.is_none()) && Instant::now() < deadline {
        let mut any = false;
        for it in completions {
            let taken = it.queue.poll(|completion| {
                let number = completion.queue_pair;
                let of = trials.iter_mut().find(|trial| trial.lane.pair.number() == number);
                if let Some(trial) = of {
                    trial.outcome = Some(completion.status);
                }
            });
            any |= taken.map_err(|error| Failure::Again(error.into()))? > 0;
        }
        if !any {
            let bells = completions.iter().map(|it| it.channel.fd());
            // Failing to wait is answered by looking again.
            let _ = wait(bells, None, LOOK_AGAIN);
            for it in completions {
                it.queue.take_notifications();
                it.queue.arm().map_err(|error| Failure::Again(error.into()))?;
            }
        }
    }
    let mut failed = None;
    let mut lanes = Vec::new();
    for trial in trials {
        let why = match trial.outcome {
            Some(Status::SUCCESS) => {
                lanes.push(trial.lane);
                continue;
            }
            Some(status) => status.text(),
            None => "no completion",
        };
        let gid = trial.accepted.endpoint.gid;
        let reason = format!(
            "a trial write from {} to {gid:?} did not arrive ({why}); check that the two \
             adapters reach each other and that their link is up",
            trial.rail.name()
        );
        tracing::warn!(peer, reason, "a queue pair is not used");
        failed = Some(disconnected(peer, reason));
    }
    match failed {
        Some(error) if lanes.is_empty() => Err(Failure::Again(error)),
        _ => Ok(lanes),
    }
}
