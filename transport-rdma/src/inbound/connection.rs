//! Serves one sender: connects queue pairs, then answers until it goes.

use super::fence::Inbound;
use super::table::NotConnected;
use crate::plane::Shared;
use crate::rail::match_rails;
use crate::side::{Ended, Frames, Outgoing, wait};
use crate::verbs::{Endpoint, QueuePair, QueueSizes, VerbsError};
use crate::wire::{AcceptedEndpoint, Connect, Refusal, ToReceiver, ToSender};
use kvbaton_actors::transport::Rejection;
use kvbaton_transport_tcp::data::net;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A sender that says nothing for so long is gone: it would have sent a ping.
const SILENCE: Duration = Duration::from_secs(60);

/// Serves a sender that proved the key. `Err` says what it did wrong.
pub(super) fn serve(stream: &TcpStream, peer: &str, shared: &Arc<Shared>) -> Result<(), String> {
    let socket = stream.as_raw_fd();
    let mut frames = Frames::default();
    let deadline = Instant::now() + shared.config.connect_timeout;
    let connect = loop {
        match frames.next().map_err(words)? {
            Some(frame) => match ToReceiver::decode(frame)? {
                ToReceiver::Connect(connect) => break connect,
                _ => return Err("it did not connect first".into()),
            },
            None if Instant::now() >= deadline => return Err("it did not connect in time".into()),
            None => {
                let left = deadline.saturating_duration_since(Instant::now());
                wait([socket, shared.closing.fd()], None, left).map_err(|e| e.to_string())?;
                if shared.is_closed() {
                    return Ok(());
                }
                frames.fill(socket).map_err(words)?;
            }
        }
    };
    let attempt = connect.attempt;
    let refuse = |why, text: String| {
        let mut out = Vec::new();
        ToSender::Refuse { attempt, why, text }.put(&mut out);
        net::send_all(socket, &out, deadline).map_err(|error| error.to_string())
    };
    let (pairs, accepted) = match make_pairs(&connect, shared) {
        Ok(made) => made,
        Err(error) => {
            tracing::warn!(peer, %error, "a sender could not be connected");
            return refuse(Refusal::Resources, error.to_string());
        }
    };
    let own = stream.try_clone().map_err(|error| error.to_string())?;
    let who = (peer.to_owned(), connect.instance, attempt);
    let inbound = Arc::new(Inbound::new(who, connect.generation, pairs, own));
    let number = match shared.receivers.connect(inbound.clone(), &shared.registrations) {
        Ok(number) => number,
        Err(NotConnected::Stale) => {
            shared.counters.refused(Rejection::StaleGeneration);
            return refuse(Refusal::StaleGeneration, String::new());
        }
        Err(NotConnected::Late) => return refuse(Refusal::Late, String::new()),
    };
    let mut out = Outgoing::default();
    ToSender::Accept { attempt, endpoints: accepted }.put(&mut out.bytes);
    let served = inbound.answer(&mut out, shared.config.connect_timeout).and_then(|()| {
        Serving { inbound: &inbound, number, shared, opening: None }.run(socket, frames)
    });
    // Whatever happened: nothing of it lands from here on.
    shared.receivers.cut_off(&inbound);
    served
}

fn words(ended: Ended) -> String {
    match ended {
        Ended::Broken(reason) => reason,
        Ended::Foreign(what) => what.into(),
    }
}

/// Queue pairs for a sender's, connected to them.
fn make_pairs(
    connect: &Connect,
    shared: &Shared,
) -> Result<(Vec<QueuePair>, Vec<AcceptedEndpoint>), VerbsError> {
    let mut places = Vec::new();
    let mut down = None;
    for rail in &shared.rails {
        match rail.place() {
            Ok(place) => places.push((rail.index, place.gid)),
            Err(error) => down = Some(error),
        }
    }
    if places.is_empty() {
        return Err(down.unwrap_or(VerbsError::NoDevice));
    }
    let mut pairs = Vec::new();
    let mut accepted = Vec::new();
    for (peer, rail) in connect.endpoints.iter().zip(match_rails(&places, &connect.endpoints)) {
        let rail = &shared.rails[rail];
        let place = rail.place()?;
        let sizes = QueueSizes { depth: 1, pieces: 1, inline: 0 };
        let pair = QueuePair::new(&rail.domain, &rail.sink, sizes)?;
        let first_packet = rand::random::<u32>() & 0xff_ffff;
        pair.initialize(&place.port, true)?;
        pair.connect(&place.port, &place.gid, first_packet, peer, shared.config.timing)?;
        let endpoint = Endpoint {
            number: pair.number(),
            first_packet,
            gid: place.gid.gid,
            lid: place.port.lid,
            mtu: place.port.mtu,
        };
        let (scratch, scratch_key) = (rail.scratch.address(), rail.scratch.remote_key());
        let rail = rail.index as u8;
        accepted.push(AcceptedEndpoint { endpoint, rail, scratch, scratch_key });
        pairs.push(pair);
    }
    Ok((pairs, accepted))
}

struct Serving<'a> {
    inbound: &'a Arc<Inbound>,
    number: u64,
    shared: &'a Arc<Shared>,
    /// A write whose destinations are still coming, and the first reason to refuse it.
    opening: Option<(u64, Result<(), Rejection>)>,
}

impl Serving<'_> {
    fn run(mut self, socket: i32, mut frames: Frames) -> Result<(), String> {
        let mut out = Outgoing::default();
        let mut heard = Instant::now();
        while !self.shared.is_closed() {
            while let Some(frame) = frames.next().map_err(words)? {
                if !self.take(ToReceiver::decode(frame)?, &mut out)? {
                    return Ok(());
                }
            }
            self.inbound.answer(&mut out, self.shared.config.connect_timeout)?;
            match frames.fill(socket) {
                Ok(true) => heard = Instant::now(),
                Ok(false) if heard.elapsed() > SILENCE => return Err("it fell silent".into()),
                // Asking and answering often come in quick turns.
                Ok(false) if heard.elapsed() < self.shared.config.spin => std::hint::spin_loop(),
                Ok(false) => wait([socket, self.shared.closing.fd()], None, SILENCE)
                    .map_err(|error| error.to_string())?,
                // A sender that goes is nothing to complain about.
                Err(Ended::Broken(_)) => return Ok(()),
                Err(ended) => return Err(words(ended)),
            }
        }
        Ok(())
    }

    /// Takes one frame in; false when it was the last.
    fn take(&mut self, frame: ToReceiver, out: &mut Outgoing) -> Result<bool, String> {
        match frame {
            ToReceiver::Connect(_) => return Err("it connected twice".into()),
            ToReceiver::Bye => return Ok(false),
            ToReceiver::Ping(number) => ToSender::Pong(number).put(&mut out.bytes),
            ToReceiver::Close { number, bytes } => {
                self.shared.counters.received(bytes);
                self.shared.receivers.end(self.number, number, bytes);
            }
            ToReceiver::Open { number, grant, last, ranges } => {
                let generation = Some(self.inbound.generation);
                let checked =
                    self.shared.memory.admit(generation, Some(grant), &ranges).map(|_| ());
                let mut verdict = match self.opening.take() {
                    Some((of, before)) if of == number => before.and(checked),
                    Some(_) => return Err("it mixed the destinations of two writes".into()),
                    None => checked,
                };
                if !last {
                    self.opening = Some((number, verdict));
                    return Ok(true);
                }
                if verdict.is_ok() {
                    let memory = &self.shared.memory;
                    match self.shared.receivers.begin(self.number, number, grant, memory) {
                        Ok(begun) => verdict = begun,
                        // Cut off meanwhile: the sender is told so.
                        Err("it was cut off") => return Ok(false),
                        Err(what) => return Err(what.into()),
                    }
                }
                if let Err(why) = verdict {
                    self.shared.counters.refused(why);
                }
                ToSender::Opened { number, verdict }.put(&mut out.bytes);
            }
        }
        Ok(true)
    }
}
