//! Serves Mooncake's control frames: one request a connection.

use super::super::listen::Connection;
use super::super::net;
use super::super::plane::Shared;
use super::descriptor;
use serde_json::{Value, json};
use std::time::Instant;

/// Most bytes of a frame, its type included.
pub(super) const MAX_FRAME: u64 = 1 << 20;
/// Types of frames.
pub(super) const METADATA: u8 = 1;
const CONNECTION: u8 = 0;
const NOTIFY: u8 = 2;
const PROBE: u8 = 3;

/// Answers the frame whose length was read. An error says what was wrong with it.
pub(in crate::data) fn serve(
    connection: &Connection,
    len: u64,
    deadline: Instant,
    shared: &Shared,
) -> Result<(), String> {
    if !shared.config.allow_stock_peers {
        return Err("not a kvbaton peer, and `allow_stock_peers` is off".into());
    }
    if len == 0 || len > MAX_FRAME {
        return Err(format!("a control frame of {len} bytes; another protocol?"));
    }
    let len = usize::try_from(len).expect("at most a mebibyte");
    let mut frame = vec![0; len];
    net::receive_exact(connection.fd(), &mut frame, deadline)
        .map_err(|error| format!("an unfinished control frame: {error}"))?;
    let kind = frame[0];
    let answer = answer(kind, &frame[1..], shared).ok_or("an unknown control frame")?;
    net::send_all(connection.fd(), &encode(kind, &answer), deadline)
        .map_err(|error| format!("an answer not taken: {error}"))?;
    connection.finish();
    // Wait for the client to close, so that our answer is not lost; late is fine too.
    let _ = net::receive_exact(connection.fd(), &mut [0], deadline);
    Ok(())
}

fn answer(kind: u8, body: &[u8], shared: &Shared) -> Option<Value> {
    match kind {
        CONNECTION => Some(json!({
            "local_nic_path": "",
            "peer_nic_path": "",
            "qp_num": [],
            "reply_msg": "this node speaks TCP only; use protocol tcp towards it",
        })),
        METADATA => Some(descriptor::ours(shared)),
        NOTIFY => serde_json::from_slice::<Value>(body)
            .ok()
            .map(|_| json!({"name": "", "notify_msg": "success"})),
        PROBE => Some(json!({"status": "success"})),
        _ => None,
    }
}

/// Makes a control frame.
pub(super) fn encode(kind: u8, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let mut frame = Vec::with_capacity(9 + body.len());
    frame.extend((body.len() as u64 + 1).to_le_bytes());
    frame.push(kind);
    frame.extend(body.as_bytes());
    frame
}
