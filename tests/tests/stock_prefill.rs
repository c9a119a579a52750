//! Our D with stock Ps: real ZeroMQ, and a real Mooncake transfer engine that writes.

use kvbaton_core::receiver::{LoadEnd, LoadFailureReason};
use kvbaton_tests::mooncake::Mooncake;
use kvbaton_tests::node::{NodeOptions, Side, TestNode};
use kvbaton_tests::stock::{ReceivedPull, StockPrefill};
use kvbaton_transport_tcp::bootstrap::{BootstrapConfig, BootstrapServer};
use serde_json::json;
use std::time::Duration;

const ENGINE: &str = "stock-prefill";

/// Our D, a stock P, and the bootstrap server between them.
struct Pair {
    decode: TestNode,
    prefill: StockPrefill,
    bootstrap: BootstrapServer,
}

impl Pair {
    fn start() -> Self {
        Self::with(StockPrefill::register)
    }

    fn with(prefill: impl FnOnce(&str, &str) -> StockPrefill) -> Self {
        let bootstrap = BootstrapServer::start(BootstrapConfig::default()).expect("a free port");
        let decode = TestNode::start(NodeOptions::new("decode", Side::Decode));
        let prefill = prefill(&bootstrap.url(), ENGINE);
        Self { decode, prefill, bootstrap }
    }

    fn load(&self, name: &str, blocks: &[u32]) {
        self.decode.load(name, name, (ENGINE, &self.bootstrap.url()), blocks);
    }

    /// One load up to P's receipt of the pull.
    fn pulled(&mut self, name: &str, blocks: &[u32]) -> ReceivedPull {
        self.load(name, blocks);
        self.prefill.next_pull()
    }

    fn session(&self) -> String {
        self.decode.node().handle().session().to_string()
    }
}

/// Rows that a pull names, as a stock P computes their addresses: (address, length).
fn rows(pull: &ReceivedPull) -> Vec<(u64, u64)> {
    let layout = pull.pull.layout.as_ref().expect("the layout rides along");
    let blocks = &pull.pull.requests[0].groups[0];
    layout
        .base_addrs
        .iter()
        .zip(layout.block_lens.iter().zip(&layout.kv_block_lens))
        .flat_map(|(base, (stride, len))| {
            blocks.iter().map(move |id| (base + u64::from(id.0) * stride, *len))
        })
        .collect()
}

#[test]
fn l07_a_p_that_never_echoes_gets_the_layout_with_every_pull() {
    let mut pair = Pair::start();
    for name in ["a", "b", "c", "d"] {
        let pull = pair.pulled(name, &[1, 2]);
        assert!(pull.has_layout(), "pull {name} of a P that never echoed");
        assert_eq!(pull.layout_id() % 2, 1, "the id goes along all the same [L01]");
        pair.prefill.finish(&pull, 0);
        assert_eq!(pair.decode.load_end(name), LoadEnd::Loaded);
    }
}

#[test]
fn l04_only_after_an_echo_of_its_current_id_the_layout_stays_away() {
    let mut pair = Pair::start();
    let first = pair.pulled("a", &[1]);
    assert!(first.has_layout());
    pair.prefill.finish(&first, first.layout_id());
    assert_eq!(pair.decode.load_end("a"), LoadEnd::Loaded);

    let second = pair.pulled("b", &[2]);
    assert!(!second.has_layout(), "it was echoed");
    assert_eq!(second.layout_id(), first.layout_id());
    pair.prefill.finish(&second, second.layout_id());
    assert_eq!(pair.decode.load_end("b"), LoadEnd::Loaded);
}

#[test]
fn l05_a_layout_miss_is_answered_with_the_layout_once_and_a_second_miss_fails() {
    let mut pair = Pair::start();
    let first = pair.pulled("a", &[1]);
    pair.prefill.finish(&first, first.layout_id());
    assert_eq!(pair.decode.load_end("a"), LoadEnd::Loaded);

    let short = pair.pulled("b", &[2]);
    assert!(!short.has_layout());
    pair.prefill.reply(&short, json!({"status": 3}));
    let again = pair.prefill.next_pull();
    assert!(again.has_layout(), "resent with the layout");
    assert_eq!(again.requests(), short.requests());
    pair.prefill.finish(&again, again.layout_id());
    assert_eq!(pair.decode.load_end("b"), LoadEnd::Loaded);

    let short = pair.pulled("c", &[3]);
    pair.prefill.reply(&short, json!({"status": 3}));
    let again = pair.prefill.next_pull();
    assert!(again.has_layout());
    pair.prefill.reply(&again, json!({"status": 3}));
    let LoadEnd::Failed(failure) = pair.decode.load_end("c") else { panic!("a second miss") };
    assert_eq!(failure.reason, LoadFailureReason::Refused, "{}", failure.message);
}

#[test]
fn l10_an_echo_of_the_registration_before_acknowledges_nothing() {
    let mut pair = Pair::start();
    let first = pair.pulled("a", &[1]);
    pair.prefill.finish(&first, 0);
    assert_eq!(pair.decode.load_end("a"), LoadEnd::Loaded);
    let bound = Duration::from_secs(10);
    pair.decode.node().unregister(bound).expect("nothing uses the pool");
    // SAFETY: the pool is still mapped, as when it was registered.
    unsafe { pair.decode.node().restore() }.expect("the same pool again [S02]");

    let second = pair.pulled("b", &[1]);
    assert_ne!(second.layout_id(), first.layout_id(), "a new registration, a new id [S02]");
    pair.prefill.finish(&second, first.layout_id());
    assert_eq!(pair.decode.load_end("b"), LoadEnd::Loaded);
    let third = pair.pulled("c", &[1]);
    assert!(third.has_layout(), "the echo was of the old id");
    pair.prefill.finish(&third, third.layout_id());
    assert_eq!(pair.decode.load_end("c"), LoadEnd::Loaded);
}

#[test]
fn p08_a_stock_p_that_reports_failure_fails_that_request_alone() {
    let mut pair = Pair::start();
    let pull = pair.pulled("a", &[1]);
    pair.prefill.reply(
        &pull,
        json!({"status": 0, "err_reqs": ["a"], "err_msg": "the request was aborted"}),
    );
    let LoadEnd::Failed(failure) = pair.decode.load_end("a") else { panic!("P reported failure") };
    assert!(failure.message.contains("the request was aborted"), "{}", failure.message);
    // Other blocks: those of "a" stay closed to stock writers for a while [G03].
    let pull = pair.pulled("b", &[2]);
    pair.prefill.finish(&pull, 0);
    assert_eq!(pair.decode.load_end("b"), LoadEnd::Loaded);
}

#[test]
fn l07_a_p_that_was_ours_and_is_stock_now_is_asked_again_as_stock_and_may_write() {
    let mut pair = Pair::with(StockPrefill::register_in_place_of_ours);
    let row = pair.decode.options().row_bytes();
    let mut engine = Mooncake::initiator(row);
    engine.fill(0, row, 0xEE);
    let ours = pair.pulled("a", &[2]);
    assert!(ours.fields.get("remote_hostname").is_none(), "our own form: {}", ours.fields);
    // What stock's decoder makes of it.
    let missing = "Object missing required field `remote_hostname`";
    pair.prefill.reply(&ours, json!({"status": 2, "err_msg": missing}));
    let again = pair.prefill.next_pull();
    assert!(again.has_layout(), "{}", again.fields);
    for (address, len) in rows(&again) {
        assert_eq!(engine.write(&pair.session(), 0, address, len), 0, "a live stock load");
    }
    pair.prefill.finish(&again, 0);
    assert_eq!(pair.decode.load_end("a"), LoadEnd::Loaded);
    assert!(pair.decode.block(2).iter().all(|byte| *byte == 0xEE));
}

#[test]
fn z02_mooncake_writes_land_in_the_rows_that_a_live_load_names_and_nowhere_else() {
    let mut pair = Pair::start();
    let row = pair.decode.options().row_bytes();
    let mut engine = Mooncake::initiator(16 * row);
    let data: Vec<u8> = (0..8 * row).map(|at| (at * 7 + at / 251) as u8).collect();
    engine.put(0, &data);
    let session = pair.session();
    pair.decode.fill(9, 0x99);

    let pull = pair.pulled("a", &[2, 7]);
    let named = rows(&pull);
    assert_eq!(named.len(), 8, "two blocks in four layers");
    let outside = pair.decode.row_address(0, 9);
    assert_ne!(engine.write(&session, 0, outside, row), 0, "a block that no load names");
    assert_ne!(engine.write(&session, 0, outside + (1 << 40), row), 0, "no memory at all");
    let copies: Vec<_> = named
        .iter()
        .enumerate()
        .map(|(at, (address, len))| (u64::try_from(at).expect("few") * row, *address, *len))
        .collect();
    assert_eq!(engine.write_batch(&session, &copies), 0, "the rows of a live load");
    pair.prefill.finish(&pull, 0);
    assert_eq!(pair.decode.load_end("a"), LoadEnd::Loaded);
    let landed = |block| -> Vec<u8> { pair.decode.block(block) };
    let (mut seven, mut two) = (landed(7).into_iter(), landed(2).into_iter());
    let expected = |at: usize| &data[at * row as usize..(at + 1) * row as usize];
    for layer in 0..4 {
        assert!(two.by_ref().take(row as usize).eq(expected(2 * layer).iter().copied()));
        assert!(seven.by_ref().take(row as usize).eq(expected(2 * layer + 1).iter().copied()));
    }

    // The load is over: the same rows take nothing any more [G02].
    engine.fill(0, 16 * row, 0xEE);
    assert_ne!(engine.write(&session, 0, named[0].0, row), 0, "a late write");
    assert!(pair.decode.block(2)[..row as usize] == *expected(0), "and not one byte of it");
    assert!(pair.decode.block(9).iter().all(|byte| *byte == 0x99));
    let counters = pair.decode.node().status().expect("it runs").data;
    assert!(counters.refused_grant + counters.refused_range >= 3, "{counters:?}");
}

#[test]
fn s04_mooncake_writes_into_unregistered_memory_are_refused_and_again_after_the_wake() {
    let mut pair = Pair::start();
    let row = pair.decode.options().row_bytes();
    let mut engine = Mooncake::initiator(row);
    engine.fill(0, row, 0xEE);
    let session = pair.session();
    let pull = pair.pulled("a", &[2]);
    let address = rows(&pull)[0].0;
    assert_eq!(engine.write(&session, 0, address, row), 0, "a live load");
    pair.prefill.finish(&pull, 0);
    assert_eq!(pair.decode.load_end("a"), LoadEnd::Loaded);

    pair.decode.node().unregister(Duration::from_secs(10)).expect("nothing uses the pool");
    pair.decode.fill(2, 0x11);
    assert_ne!(engine.write(&session, 0, address, row), 0, "asleep");
    // SAFETY: the pool is still mapped, as when it was registered.
    unsafe { pair.decode.node().restore() }.expect("the same pool again [S02]");
    assert_ne!(engine.write(&session, 0, address, row), 0, "awake, but no load names it");
    assert!(pair.decode.block(2).iter().all(|byte| *byte == 0x11), "not one byte landed");

    let pull = pair.pulled("b", &[2]);
    assert_eq!(engine.write(&session, 0, address, row), 0, "a live load again");
    pair.prefill.finish(&pull, 0);
    assert_eq!(pair.decode.load_end("b"), LoadEnd::Loaded);
    assert!(pair.decode.row(0, 2).iter().all(|byte| *byte == 0xEE));
}
