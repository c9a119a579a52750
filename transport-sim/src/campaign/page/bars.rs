//! Bars: lifecycles on the lane's line, holds, loads and writes left of it.

use super::lanes::Lanes;
use super::rows::Rows;
use super::select::Selection;
use super::svg::escape;
use crate::history::{Event, Lane, NodeId, What};
use crate::plan::Plan;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What a bar is about. Equal keys in one lane are one bar at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Memory,
    Process,
    Pause,
    Sleep,
    Fault(usize),
    Hold(String),
    Load(String),
    Write(u64),
}

impl Key {
    /// Whether it stands left of the line, in a column of its own.
    const fn stands_aside(&self) -> bool {
        matches!(self, Self::Hold(_) | Self::Load(_) | Self::Write(_) | Self::Fault(_))
    }
}

struct Open {
    class: &'static str,
    from: i64,
    slot: usize,
    text: String,
}

/// Slots left of a line.
const SLOTS: usize = 5;

struct Bars<'a> {
    html: &'a mut String,
    plan: &'a Plan,
    lanes: &'a Lanes,
    open: BTreeMap<(Lane, Key), Open>,
}

pub fn draw(
    html: &mut String,
    plan: &Plan,
    events: &[Event],
    shown: &Selection,
    lanes: &Lanes,
    rows: &Rows,
) {
    let mut bars = Bars { html, plan, lanes, open: BTreeMap::new() };
    for index in shown.iter() {
        let (Some(event), Some(y)) = (events.get(index), rows.y(index)) else { continue };
        bars.event(event, y);
    }
    let end = rows.height();
    let keys: Vec<_> = bars.open.keys().cloned().collect();
    keys.into_iter().for_each(|(lane, key)| bars.close(lane, key, end));
}

impl Bars<'_> {
    fn open(&mut self, lane: Lane, key: Key, class: &'static str, y: i64, text: String) {
        self.close(lane, key.clone(), y);
        let used = |slot: &usize| {
            let mut aside = self.open.iter().filter(|it| it.0.0 == lane && it.0.1.stands_aside());
            !aside.any(|it| it.1.slot == *slot)
        };
        let slot = (0..SLOTS).find(used).unwrap_or(SLOTS - 1);
        self.open.insert((lane, key), Open { class, from: y, slot, text });
    }

    fn close(&mut self, lane: Lane, key: Key, y: i64) {
        let Some(bar) = self.open.remove(&(lane, key.clone())) else { return };
        let Some(line) = self.lanes.x(lane) else { return };
        let (x, width) =
            if key.stands_aside() { (line - 10 - 6 * bar.slot as i64, 4) } else { (line - 2, 5) };
        let (class, from, height) = (bar.class, bar.from, (y - bar.from).max(2));
        let text = escape(&bar.text);
        let _ = writeln!(
            self.html,
            "<rect class=\"bar {class}\" x=\"{x}\" y=\"{from}\" width=\"{width}\" \
             height=\"{height}\"><title>{text}</title></rect>"
        );
    }

    fn close_all(&mut self, lane: Lane, y: i64) {
        let keys: Vec<_> = self.open.keys().filter(|it| it.0 == lane).cloned().collect();
        keys.into_iter().for_each(|(lane, key)| self.close(lane, key, y));
    }

    /// Whether a fault takes time; a kill for good takes none, its node's bar says enough.
    fn lasts(&self, happening: usize) -> bool {
        self.plan.happenings.get(happening).is_some_and(|it| it.what.lasts_ms() > 0)
    }

    fn event(&mut self, event: &Event, y: i64) {
        // Lives share a lane.
        let lane = match event.lane {
            Lane::Node(node) => Lane::Node(NodeId { life: 0, ..node }),
            other => other,
        };
        let text = event.to_string();
        match &event.what {
            What::Happens { index, begins: true, .. } if self.lasts(*index) => {
                self.open(lane, Key::Fault(*index), "fault", y, text);
            }
            What::Happens { index, begins: false, .. } => self.close(lane, Key::Fault(*index), y),
            What::Started { .. } => self.close_all(lane, y),
            What::Killed => {
                self.close_all(lane, y);
                self.open(lane, Key::Process, "down", y, text);
            }
            What::Stopped => self.open(lane, Key::Process, "stopped", y, text),
            What::Continued => self.close(lane, Key::Process, y),
            What::Registered { .. } => self.open(lane, Key::Memory, "registered", y, text),
            What::Unregistering { .. } => self.open(lane, Key::Memory, "draining", y, text),
            What::Unregistered { .. } => self.open(lane, Key::Memory, "asleep", y, text),
            What::SleepAsked => self.open(lane, Key::Sleep, "draining", y, text),
            What::Slept => self.open(lane, Key::Sleep, "asleep", y, text),
            What::Woke | What::SleepFailed { .. } => self.close(lane, Key::Sleep, y),
            What::Paused { .. } => self.open(lane, Key::Pause, "paused", y, text),
            What::Resumed => self.close(lane, Key::Pause, y),
            What::Held { transfer, .. } => {
                self.open(lane, Key::Hold(transfer.to_string()), "hold", y, text);
            }
            What::SendEnded { transfer, .. } => {
                self.close(lane, Key::Hold(transfer.to_string()), y);
            }
            What::LoadAsked { request, .. } => {
                self.open(lane, Key::Load(request.to_string()), "load", y, text);
            }
            What::LoadEnded { request, .. } => self.close(lane, Key::Load(request.to_string()), y),
            What::WriteStarted { write, .. } => {
                self.open(lane, Key::Write(write.number), "writing", y, text);
            }
            What::WriteEnded { write, .. } => self.close(lane, Key::Write(write.number), y),
            _ => {}
        }
    }
}
