//! Columns: world, clients, engines, nodes. Lives of one rank share a column.

use super::select::Selection;
use super::svg::escape;
use crate::history::{Event, Lane, NodeId};
use crate::plan::{Kind, Plan, Side};
use std::collections::BTreeMap;
use std::fmt::Write;

const AXIS: i64 = 96;
const WIDTH: i64 = 232;
/// From a column's left edge to its line; bars stand left of the line.
const LINE: i64 = 40;

/// Columns of the lanes that have events.
pub struct Lanes {
    columns: BTreeMap<Lane, (i64, String)>,
}

/// A lane whatever the life.
fn column(lane: Lane) -> Lane {
    match lane {
        Lane::Node(node) => Lane::Node(NodeId { life: 0, ..node }),
        other => other,
    }
}

/// World, clients, then each engine before its ranks.
fn order(lane: Lane) -> (u8, u16, u32) {
    match lane {
        Lane::World => (0, 0, 0),
        Lane::Clients => (1, 0, 0),
        Lane::Engine(engine) => (2, engine, 0),
        Lane::Node(node) => (2, node.engine, u32::from(node.rank) + 1),
    }
}

impl Lanes {
    pub fn new(plan: &Plan, events: &[Event], shown: &Selection) -> Self {
        let mut lanes: Vec<_> = shown.iter().map(|it| column(events[it].lane)).collect();
        lanes.sort_by_key(|it| order(*it));
        lanes.dedup();
        let columns = lanes.into_iter().enumerate().map(|(index, lane)| {
            let mut name = lane.to_string();
            if let Lane::Engine(engine) = lane
                && let Some(it) = plan.fleet.engines.get(usize::from(engine))
            {
                name += match it.side {
                    Side::Prefill => " (P)",
                    Side::Decode => " (D)",
                    Side::Both => " (P, D)",
                };
                name += if it.kind == Kind::Ours { "" } else { " stock" };
            }
            (lane, (AXIS + index as i64 * WIDTH + LINE, name))
        });
        Self { columns: columns.collect() }
    }

    /// Where a lane's line stands.
    pub fn x(&self, lane: Lane) -> Option<i64> {
        self.columns.get(&column(lane)).map(|it| it.0)
    }

    pub fn width(&self) -> i64 {
        AXIS + self.columns.len() as i64 * WIDTH
    }

    /// The lanes' names, which stay at the top.
    pub fn heads(&self, html: &mut String) {
        let _ = write!(html, "<div class=\"heads\" style=\"width:{}px\">", self.width());
        for (x, name) in self.columns.values() {
            let _ = write!(html, "<span style=\"left:{}px\">{}</span>", x - 6, escape(name));
        }
        html.push_str("</div>\n");
    }

    pub fn lines(&self, html: &mut String, height: i64) {
        for (x, _) in self.columns.values() {
            let _ = writeln!(
                html,
                "<line class=\"lane\" x1=\"{x}\" y1=\"0\" x2=\"{x}\" y2=\"{height}\" />"
            );
        }
    }
}
