//! Serves Mooncake's data protocol: writes into rows of grants that allow it `[Z02]`.

use super::super::listen::Connection;
use super::super::memory::Landing;
use super::super::net::{self, Gather, Piece};
use super::super::plane::Shared;
use super::super::receive::READ_BYTES;
use super::request::{self, Operation, Request};
use kvbaton_actors::transport::Rejection;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How long a client may leave its statuses unread.
const STATUS_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves one connection until it ends. An error says what the client did wrong.
pub(in crate::data) fn serve(connection: &Connection, shared: &Shared) -> Result<(), String> {
    let mut gather = Gather::new(1, READ_BYTES);
    let deadline = Instant::now() + shared.config.handshake_timeout;
    let mut introduced = false;
    loop {
        let mut header = [0; request::LEN];
        if !introduced {
            net::receive_exact(connection.fd(), &mut header, deadline)
                .map_err(|error| format!("no request: {error}"))?;
        } else if !receive_or_end(connection, &mut header) {
            return Ok(());
        }
        introduced = true;
        connection.touch();
        let request = request::decode(&header).ok_or("an unknown operation")?;
        let refusal = match take(&request, connection, shared, &mut gather) {
            Taken::Applied => None,
            Taken::Gone => return Ok(()),
            Taken::Refused(rejection) => Some(rejection),
        };
        if request.statuses {
            let status = request::status(refusal.is_none());
            let deadline = Instant::now() + STATUS_TIMEOUT;
            net::send_all(connection.fd(), &status, deadline)
                .map_err(|error| format!("a status not taken: {error}"))?;
        }
        if let Some(rejection) = refusal {
            shared.counters.refused(rejection);
            connection.finish();
            return linger(connection, shared);
        }
    }
}

enum Taken {
    Applied,
    Refused(Rejection),
    Gone,
}

fn take(request: &Request, connection: &Connection, shared: &Shared, gather: &mut Gather) -> Taken {
    if request.operation == Operation::Read {
        return Taken::Refused(Rejection::GrantRequired);
    }
    match shared.memory.admit_ungranted(request.range) {
        Ok(landing) => land(request, &landing, connection, shared, gather),
        Err(rejection) => Taken::Refused(rejection),
    }
}

fn land(
    request: &Request,
    landing: &Landing,
    connection: &Connection,
    shared: &Shared,
    gather: &mut Gather,
) -> Taken {
    // Admitted ranges lie in registered memory, so they are addressable.
    let mut piece =
        Piece { address: request.range.start.0 as usize, len: request.range.len.0 as usize };
    while piece.len > 0 {
        gather.fill(&[piece], 0);
        let entered = match landing.enter() {
            Ok(entered) => entered,
            Err(rejection) => return Taken::Refused(rejection),
        };
        // SAFETY: the admitted range lies in granted rows of registered memory, and while
        // `entered` lives neither ends.
        let read = unsafe { net::receive_pieces(connection.fd(), gather) };
        match read {
            Ok(0) => return Taken::Gone,
            Ok(got) => {
                entered.landed(got as u64);
                shared.counters.bytes_received.fetch_add(got as u64, Relaxed);
                piece = Piece { address: piece.address + got, len: piece.len - got };
            }
            Err(error) if net::is_retry(&error) => {
                drop(entered);
                if net::wait(&[(connection.fd(), net::READABLE)], None).is_err() {
                    return Taken::Gone;
                }
            }
            Err(_) => return Taken::Gone,
        }
    }
    Taken::Applied
}

/// Takes the next request, however late; false when the client closed.
fn receive_or_end(connection: &Connection, header: &mut [u8]) -> bool {
    let mut got = 0;
    while got < header.len() {
        match net::receive(connection.fd(), &mut header[got..]) {
            Ok(0) => return false,
            Ok(more) => got += more,
            Err(error) if net::is_retry(&error) => {
                if net::wait(&[(connection.fd(), net::READABLE)], None).is_err() {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
    true
}

/// Drops what a refused client still sends, for a moment: closing with unread bytes would
/// reset the connection and might take the status with it.
fn linger(connection: &Connection, shared: &Shared) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(1);
    while Instant::now() < deadline && !shared.is_closed() {
        match net::discard(connection.fd(), READ_BYTES) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if net::is_retry(&error) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if !matches!(net::wait(&[(connection.fd(), net::READABLE)], Some(left)), Ok(true)) {
                    break;
                }
            }
            Err(_) => break,
        }
    }
    Ok(())
}
