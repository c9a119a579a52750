//! Stock control planes: libzmq sockets in processes of their own.

use crate::PATIENCE;
use crate::mooncake::{bytes, hex};
use crate::peer::Peer;
use crate::python;
use kvbaton_core::wire::{Limits, Pull, Reply, ToPrefill};
use serde_json::{Value, json};

fn patience_ms() -> u64 {
    u64::try_from(PATIENCE.as_millis()).expect("a short time")
}

/// A stock D that sends pulls as they are given to it.
pub struct StockDecode {
    peer: Peer,
}

impl StockDecode {
    /// One that talks to the P at `address`.
    #[must_use]
    pub fn connect(address: &str) -> Self {
        Self { peer: python::script("pyzmq_decode.py", &[address]).0 }
    }

    /// Sends bytes and takes the next reply; connects anew first, as stock does.
    ///
    /// # Panics
    /// When none comes in time.
    pub fn pull(&mut self, payload: &[u8]) -> Reply {
        self.peer.ask(json!({"op": "reconnect"}));
        self.peer.ask(json!({"op": "send", "hex": hex(payload)}));
        self.receive()
    }

    /// Takes the next reply.
    ///
    /// # Panics
    /// When none comes in time, or it is not one.
    pub fn receive(&mut self) -> Reply {
        // The script gives up first, so that it can say so.
        let answer = self.peer.ask(json!({"op": "receive", "timeout_ms": patience_ms() / 2}));
        let reply = answer["hex"].as_str().expect("the prefill answers each pull in time [P02]");
        Reply::decode(&bytes(reply), &Limits::default()).expect("a reply")
    }
}

/// A stock P whose answers the test makes up.
pub struct StockPrefill {
    peer: Peer,
    /// Its control address.
    pub address: String,
}

/// A pull as a stock P received it.
pub struct ReceivedPull {
    /// Names it in the answer.
    number: u64,
    /// As our codec reads it.
    pub pull: Pull,
    /// The map as msgpack has it: what a stock P sees.
    pub fields: Value,
}

impl ReceivedPull {
    /// Whether the layout rides along, as a stock P tells.
    #[must_use]
    pub fn has_layout(&self) -> bool {
        self.fields["kv_caches_base_addr"].as_array().is_some_and(|list| !list.is_empty())
    }

    /// The layout id that a stock P would echo; 0 when there is none.
    #[must_use]
    pub fn layout_id(&self) -> u64 {
        self.fields["layout_id"].as_u64().unwrap_or(0)
    }

    /// D's names of the requests.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.pull.requests.iter().map(|it| it.request_id.as_str().to_owned()).collect()
    }
}

impl StockPrefill {
    /// One that registers as the only rank of `engine`, with the stock fields only.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn register(bootstrap: &str, engine: &str) -> Self {
        Self::start(&["--bootstrap", bootstrap, "--engine", engine])
    }

    /// One that lives where a kvbaton P lived before: the bootstrap server still tells what
    /// that one said of itself.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn register_in_place_of_ours(bootstrap: &str, engine: &str) -> Self {
        let ours = r#"{"revision": 1, "features": "0x0", "incarnation": "0x5eed"}"#;
        Self::start(&["--bootstrap", bootstrap, "--engine", engine, "--kvbaton", ours])
    }

    fn start(arguments: &[&str]) -> Self {
        let (peer, greeting) = python::script("pyzmq_prefill.py", arguments);
        let address = greeting["address"].as_str().expect("an address").to_owned();
        Self { peer, address }
    }

    /// The next pull.
    ///
    /// # Panics
    /// When none comes in time, or it is not one.
    pub fn next_pull(&mut self) -> ReceivedPull {
        let answer = self.peer.ask(json!({"op": "pull", "timeout_ms": patience_ms() / 2}));
        let number = answer["pull"].as_u64().expect("D pulls in time");
        let payload = bytes(answer["hex"].as_str().expect("hex"));
        let message = ToPrefill::decode(&payload, &Limits::default()).expect("a message");
        let ToPrefill::Pull(pull) = message else { panic!("not a pull: {message:?}") };
        ReceivedPull { number, pull, fields: answer["fields"].clone() }
    }

    /// Answers a pull with these fields.
    pub fn reply(&mut self, to: &ReceivedPull, fields: Value) {
        self.peer.ask(json!({"op": "reply", "pull": to.number, "fields": fields}));
    }

    /// Answers that every request of a pull was sent; `echo` 0 leaves the id out.
    pub fn finish(&mut self, to: &ReceivedPull, echo: u64) {
        let mut fields = json!({"status": 0, "ok_reqs": to.requests()});
        if echo != 0 {
            fields["layout_id"] = echo.into();
        }
        self.reply(to, fields);
    }
}
