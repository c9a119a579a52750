//! A node in a process of its own, which can be stopped and killed.

use super::in_process::TestNode;
use super::options::NodeOptions;
use crate::peer::Peer;
use kvbaton_actors::events::Event;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::receiver::LoadEnd;
use kvbaton_core::sender::Ended;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::process::Command;

/// What the process can be told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Order {
    /// Overwrites blocks, all layers.
    Fill { start: u32, len: u32, byte: u8 },
    /// Counts a byte value in blocks, all layers.
    Count { start: u32, len: u32, byte: u8 },
    /// P: holds blocks.
    Hold { request: String, transfer: String, start: u32, len: u32 },
    /// D: starts a load.
    Load {
        request: String,
        transfer: String,
        engine: String,
        bootstrap: String,
        start: u32,
        len: u32,
    },
    /// Waits for the end of one request, on either side.
    End { request: String },
}

/// Drives a [`super::TestNode`] that lives in another process.
pub struct NodeProcess {
    peer: Peer,
    /// Control address, of a P.
    pub address: Option<String>,
}

impl NodeProcess {
    /// Starts `program`, which calls [`serve`].
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(program: &str, options: &NodeOptions) -> Self {
        let mut command = Command::new(program);
        command.arg(serde_json::to_string(options).expect("options are plain data"));
        let (peer, greeting) = Peer::start(&options.engine, command);
        Self { peer, address: greeting["address"].as_str().map(Into::into) }
    }

    /// The process, to stop and kill it.
    pub const fn process(&mut self) -> &mut Peer {
        &mut self.peer
    }

    /// Overwrites blocks, all layers.
    pub fn fill(&mut self, (start, len): (u32, u32), byte: u8) {
        self.order(&Order::Fill { start, len, byte });
    }

    /// How often a byte value occurs in blocks, all layers.
    pub fn count(&mut self, (start, len): (u32, u32), byte: u8) -> u64 {
        let answer = self.order(&Order::Count { start, len, byte });
        answer["count"].as_u64().expect("a count")
    }

    /// P: holds blocks.
    pub fn hold(&mut self, request: &str, transfer: &str, (start, len): (u32, u32)) {
        let (request, transfer) = (request.into(), transfer.into());
        self.order(&Order::Hold { request, transfer, start, len });
    }

    /// D: starts a load.
    pub fn load(
        &mut self,
        request: &str,
        transfer: &str,
        (engine, bootstrap): (&str, &str),
        (start, len): (u32, u32),
    ) {
        let (request, transfer) = (request.into(), transfer.into());
        let (engine, bootstrap) = (engine.into(), bootstrap.into());
        self.order(&Order::Load { request, transfer, engine, bootstrap, start, len });
    }

    /// Waits for the end of a request; `"loaded"`, `"sent"`, `"dropped"` or `"failed"`.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn end(&mut self, request: &str) -> String {
        let answer = self.order(&Order::End { request: request.into() });
        answer["end"].as_str().expect("an end").to_owned()
    }

    fn order(&mut self, order: &Order) -> Value {
        self.peer.ask(serde_json::to_value(order).expect("orders are plain data"))
    }
}

/// Runs a node for a [`NodeProcess`]: options come as the first argument, orders on stdin.
///
/// # Panics
/// On anything unexpected; the other side shows what it says.
pub fn serve() {
    let options = std::env::args().nth(1).expect("options as the first argument");
    let options: NodeOptions = serde_json::from_str(&options).expect("options");
    let mut node = TestNode::start(options);
    say(&json!({"address": node.node().handle().address()}));
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("stdin can be read");
        let order: Order = serde_json::from_str(&line).expect("an order");
        say(&carry_out(&mut node, order));
    }
}

fn say(answer: &Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}").and_then(|()| out.flush()).expect("stdout can be written");
}

fn carry_out(node: &mut TestNode, order: Order) -> Value {
    match order {
        Order::Fill { start, len, byte } => {
            (start..start + len).for_each(|block| node.fill(block, byte));
            json!({"ok": true})
        }
        Order::Count { start, len, byte } => {
            let count: usize = (start..start + len)
                .map(|block| node.block(block).into_iter().filter(|it| *it == byte).count())
                .sum();
            json!({"count": count})
        }
        Order::Hold { request, transfer, start, len } => {
            node.hold(&request, &transfer, BlockList::run(start, len));
            json!({"ok": true})
        }
        Order::Load { request, transfer, engine, bootstrap, start, len } => {
            node.load(&request, &transfer, (&engine, &bootstrap), BlockList::run(start, len));
            json!({"ok": true})
        }
        Order::End { request } => {
            let end = node.take(&format!("{request} ends"), |event| end_of(event, &request));
            json!({"end": end})
        }
    }
}

/// How a request ended, on either side, in one word.
fn end_of(event: &Event, request: &str) -> Option<&'static str> {
    match event {
        Event::SendEnded { request: over, ended, .. } if over.as_str() == request => {
            Some(match ended {
                Ended::Sent => "sent",
                Ended::Failed(_) => "failed",
            })
        }
        Event::LoadEnded { request: over, end, .. } if over.as_str() == request => {
            Some(match end {
                LoadEnd::Loaded => "loaded",
                LoadEnd::Failed(_) => "failed",
                LoadEnd::Dropped => "dropped",
            })
        }
        _ => None,
    }
}
