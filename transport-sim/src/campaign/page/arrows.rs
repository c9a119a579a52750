//! Arrows: control messages from the event that sent them to the one that saw them, writes
//! to where they landed.

use super::lanes::Lanes;
use super::rows::Rows;
use super::select::Selection;
use super::svg::escape;
use crate::history::{ConnectionId, Event, What, WriteName};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

/// A message of this kind, on this connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Pull,
    Reply,
    Drop,
}

impl Kind {
    const fn class(self) -> &'static str {
        match self {
            Self::Pull => "pull",
            Self::Reply => "reply",
            Self::Drop => "drop",
        }
    }
}

#[derive(Debug, Clone)]
struct Sent {
    kind: Kind,
    x: i64,
    y: i64,
    text: String,
}

#[derive(Default)]
struct Connection {
    under_way: VecDeque<Sent>,
    /// The last one seen of each kind; one more is a duplicate of it.
    seen: BTreeMap<Kind, Sent>,
}

/// A write: where it started, and where a piece landed or was refused last.
#[derive(Debug, Clone, Copy)]
struct Written {
    from: (i64, i64),
    last: Option<(i64, i64)>,
}

struct Arrows<'a> {
    html: &'a mut String,
    connections: BTreeMap<ConnectionId, Connection>,
    writes: BTreeMap<WriteName, Written>,
}

pub fn draw(html: &mut String, events: &[Event], shown: &Selection, lanes: &Lanes, rows: &Rows) {
    let mut arrows = Arrows { html, connections: BTreeMap::new(), writes: BTreeMap::new() };
    for index in shown.iter() {
        let event = &events[index];
        if let (Some(x), Some(y)) = (lanes.x(event.lane), rows.y(index)) {
            arrows.message(event, x, y);
            arrows.write(event, x, y);
        }
    }
    let connections = std::mem::take(&mut arrows.connections);
    for (connection, it) in connections {
        let key = format!("c{}", connection.0);
        for sent in it.under_way {
            let (x, y) = (sent.x + 26, sent.y + 10);
            arrows.line("under", &key, (sent.x, sent.y), (x, y), &sent.text);
        }
    }
}

impl Arrows<'_> {
    fn line(&mut self, class: &str, key: &str, from: (i64, i64), to: (i64, i64), text: &str) {
        let ((x1, y1), (x2, y2), text) = (from, to, escape(text));
        let _ = writeln!(
            self.html,
            "<line class=\"{class}\" data-k=\"{key}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" \
             y2=\"{y2}\"><title>{text}</title></line>"
        );
    }

    fn cross(&mut self, key: &str, (x, y): (i64, i64)) {
        let (left, right, up, down) = (x - 4, x + 4, y - 4, y + 4);
        let _ = writeln!(
            self.html,
            "<path class=\"cross\" data-k=\"{key}\" d=\"M{left} {up} L{right} {down} M{left} \
             {down} L{right} {up}\" />"
        );
    }

    fn message(&mut self, event: &Event, x: i64, y: i64) {
        use Kind::{Drop, Pull, Reply};
        let (kind, connection, sends) = match &event.what {
            What::PullSent { connection, .. } => (Pull, *connection, true),
            What::PullReceived { connection, .. } => (Pull, *connection, false),
            What::ReplySent { connection, .. } => (Reply, *connection, true),
            What::ReplyReceived { connection, .. } => (Reply, *connection, false),
            What::DropSent { connection, .. } => (Drop, *connection, true),
            What::DropReceived { connection, .. } => (Drop, *connection, false),
            What::MessageLost { connection } => return self.lost(*connection, y),
            _ => return,
        };
        let it = self.connections.entry(connection).or_default();
        if sends {
            it.under_way.push_back(Sent { kind, x, y, text: event.to_string() });
            return;
        }
        let key = format!("c{}", connection.0);
        if let Some(index) = it.under_way.iter().position(|it| it.kind == kind) {
            let Some(sent) = it.under_way.remove(index) else { return };
            it.seen.insert(kind, sent.clone());
            self.line(kind.class(), &key, (sent.x, sent.y), (x, y), &sent.text);
        } else if let Some(sent) = it.seen.get(&kind).cloned() {
            let text = format!("{} (again)", sent.text);
            self.line("again", &key, (sent.x, sent.y), (x, y), &text);
        }
    }

    /// The last message under way on the connection got no further.
    fn lost(&mut self, connection: ConnectionId, y: i64) {
        let it = self.connections.entry(connection).or_default();
        let Some(sent) = it.under_way.pop_back() else { return };
        let key = format!("c{}", connection.0);
        let to = (sent.x + 44, y.max(sent.y + 8));
        self.line("lost", &key, (sent.x, sent.y), to, &format!("{} (lost)", sent.text));
        self.cross(&key, to);
    }

    fn write(&mut self, event: &Event, x: i64, y: i64) {
        let (text, here) = (event.to_string(), (x, y));
        match &event.what {
            What::WriteStarted { write, .. } => {
                self.writes.insert(*write, Written { from: here, last: None });
            }
            What::Landed { write, seen, .. } => {
                let class = if *seen { "write" } else { "write unseen" };
                self.piece(*write, class, here, &text);
            }
            What::Refused { write, .. } => {
                self.piece(*write, "write refused", here, &text);
                self.cross(&write.to_string(), here);
            }
            What::WriteEnded { write, .. } => {
                // The start is kept: what lands after the end must show.
                if let Some(last) = self.writes.get(write).and_then(|it| it.last) {
                    self.line("told", &write.to_string(), last, here, &text);
                }
            }
            _ => {}
        }
    }

    fn piece(&mut self, write: WriteName, class: &str, to: (i64, i64), text: &str) {
        let Some(it) = self.writes.get_mut(&write) else { return };
        it.last = Some(to);
        let from = it.from;
        self.line(class, &write.to_string(), from, to, text);
    }
}
