//! Processes that are killed, stopped and continued: the other side gets its blocks back in
//! bounded time, and what it then does with them stays.

use kvbaton_core::blocks::BlockList;
use kvbaton_core::receiver::LoadEnd;
use kvbaton_core::sender::Ended;
use kvbaton_tests::captured::{pointed_at, pull, stock_bytes};
use kvbaton_tests::eventually;
use kvbaton_tests::mooncake::Mooncake;
use kvbaton_tests::node::{NodeOptions, NodeProcess, Side, TestNode};
use kvbaton_tests::stock::StockDecode;
use kvbaton_transport_tcp::bootstrap::{BootstrapConfig, BootstrapServer};

const PROGRAM: &str = env!("CARGO_BIN_EXE_kvbaton-test-node");
/// 128 MiB over four layers: more than any socket buffers hold.
const MANY: u32 = 128;

fn bootstrap() -> BootstrapServer {
    BootstrapServer::start(BootstrapConfig::default()).expect("a free port")
}

fn prefill(server: &BootstrapServer) -> NodeOptions {
    let mut options = NodeOptions::new("prefill", Side::Prefill).at(&server.url());
    options.blocks = MANY + 16;
    options
}

fn decode() -> NodeOptions {
    let mut options = NodeOptions::new("decode", Side::Decode);
    options.blocks = MANY + 16;
    options
}

fn fill(node: &TestNode, blocks: std::ops::Range<u32>, byte: u8) {
    blocks.for_each(|block| node.fill(block, byte));
}

fn count(node: &TestNode, blocks: std::ops::Range<u32>, byte: u8) -> usize {
    blocks.map(|block| node.block(block).into_iter().filter(|it| *it == byte).count()).sum()
}

#[test]
fn p12_a_p_that_is_killed_before_it_answers_fails_d_load_long_before_its_timeout() {
    let server = bootstrap();
    let mut p = NodeProcess::start(PROGRAM, &prefill(&server));
    let mut options = decode();
    // Longer than the test is patient: only the broken connection can end the load in time.
    options.load_timeout_ms = 600_000;
    let mut d = TestNode::start(options);
    // P's engine never holds the transfer: the pull waits at P.
    d.load("a", "a", ("prefill", &server.url()), &[1, 2][..]);
    eventually("D's pull is on its way", || {
        d.node().status().is_some_and(|status| status.receiver.open_pulls == 1)
    });
    p.process().kill();
    assert!(matches!(d.load_end("a"), LoadEnd::Failed(_)));
    assert_eq!(d.node().status().expect("it runs").receiver.loads, 0);
}

#[test]
fn p12_a_p_that_restarted_on_its_port_refuses_the_old_engine_and_serves_the_new_one() {
    let server = bootstrap();
    let mut p = NodeProcess::start(PROGRAM, &prefill(&server));
    let address = p.address.clone().expect("a P listens");
    let port = address.rsplit(':').next().and_then(|it| it.parse().ok()).expect("a port");
    let mut d = TestNode::start(decode());
    p.fill((0, 1), 0x11);
    p.hold("a", "a", (0, 1));
    d.load("a", "a", ("prefill", &server.url()), &[1][..]);
    assert_eq!(d.load_end("a"), LoadEnd::Loaded);

    p.process().kill();
    let mut options = prefill(&server);
    (options.engine, options.control_port) = ("prefill-again".into(), port);
    let mut p = NodeProcess::start(PROGRAM, &options);
    assert_eq!(p.address.as_ref(), Some(&address), "the same host and port");
    d.load("b", "b", ("prefill", &server.url()), &[2][..]);
    let LoadEnd::Failed(failure) = d.load_end("b") else { panic!("that engine is gone") };
    assert!(!failure.message.is_empty());

    p.fill((0, 1), 0x22);
    p.hold("c", "c", (0, 1));
    d.load("c", "c", ("prefill-again", &server.url()), &[3][..]);
    assert_eq!(d.load_end("c"), LoadEnd::Loaded);
    assert!(d.block(3).iter().all(|byte| *byte == 0x22));
    assert!(d.block(2).iter().all(|byte| *byte == 0), "nothing was written for the old one");
}

#[test]
fn l11_a_d_that_restarted_on_its_port_gets_its_own_rows() {
    let server = bootstrap();
    let mut p = TestNode::start(prefill(&server));
    let mut options = decode();
    options.data_port = free_port();
    for (transfer, byte) in [("a", 0x11), ("b", 0x22)] {
        // Another process each time, at the same session.
        let mut d = NodeProcess::start(PROGRAM, &options);
        fill(&p, 0..2, byte);
        p.hold(transfer, transfer, &[0, 1][..]);
        d.load(transfer, transfer, ("prefill", &server.url()), (4, 2));
        assert_eq!(d.end(transfer), "loaded");
        assert_eq!(p.send_end(transfer), Ended::Sent);
        assert_eq!(d.count((4, 2), byte), 2 * 4 * p.options().row_bytes());
        d.process().kill();
    }
}

/// One transfer beforehand, so that the connections of a later write exist before its D is
/// stopped: otherwise the write would wait for a greeting and never send a byte.
fn warm_up(p: &mut TestNode, d: &mut NodeProcess, server: &BootstrapServer) {
    p.hold("warm", "warm", &[MANY + 15][..]);
    d.load("warm", "warm", ("prefill", &server.url()), (MANY + 15, 1));
    assert_eq!((d.end("warm"), p.send_end("warm")), ("loaded".into(), Ended::Sent));
}

/// A port that was free just now, for a process that comes back on it.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("bound").port()
}

#[test]
fn f13_a_d_that_is_killed_mid_load_costs_p_bounded_time_and_no_blocks() {
    let server = bootstrap();
    let mut options = prefill(&server);
    options.write_timeout_ms = 5_000;
    let mut p = TestNode::start(options);
    let mut d = NodeProcess::start(PROGRAM, &decode());
    warm_up(&mut p, &mut d, &server);
    d.load("a", "a", ("prefill", &server.url()), (0, MANY));
    eventually("P has the pull", || {
        p.node().status().is_some_and(|status| status.sender.open_pulls == 1)
    });
    d.process().stop();
    p.hold("a", "a", BlockList::run(0, MANY));
    eventually("P writes", || p.node().status().is_some_and(|it| it.sender.writes == 1));
    d.process().kill();
    assert!(matches!(p.send_end("a"), Ended::Failed(_)));
    let sender = p.node().status().expect("it runs").sender;
    assert_eq!((sender.held, sender.writes, sender.open_pulls), (0, 0, 0));
}

#[test]
fn f05_after_p_write_to_a_stopped_d_has_timed_out_no_newer_byte_lands_in_d() {
    let server = bootstrap();
    let mut options = prefill(&server);
    options.write_timeout_ms = 2_000;
    let mut p = TestNode::start(options);
    let mut d = NodeProcess::start(PROGRAM, &decode());
    warm_up(&mut p, &mut d, &server);
    fill(&p, 0..MANY, 0x11);
    d.load("a", "a", ("prefill", &server.url()), (0, MANY));
    eventually("P has the pull", || {
        p.node().status().is_some_and(|status| status.sender.open_pulls == 1)
    });
    d.process().stop();
    p.hold("a", "a", BlockList::run(0, MANY));
    eventually("P writes", || p.node().status().is_some_and(|it| it.sender.writes == 1));
    assert!(matches!(p.send_end("a"), Ended::Failed(_)), "the write's timeout");
    // The blocks are the engine's again: it uses them.
    fill(&p, 0..MANY, 0x22);

    d.process().proceed();
    assert_eq!(d.end("a"), "failed");
    // Whatever was still on its way has passed once a later transfer has arrived whole.
    let before = d.count((0, MANY), 0x11);
    fill(&p, MANY..MANY + 1, 0x33);
    p.hold("b", "b", &[MANY][..]);
    d.load("b", "b", ("prefill", &server.url()), (MANY, 1));
    assert_eq!(d.end("b"), "loaded");
    assert_eq!(d.count((MANY, 1), 0x33), 4 * p.options().row_bytes());
    assert_eq!(d.count((0, MANY), 0x22), 0, "bytes from after the error was returned");
    assert_eq!(d.count((0, MANY), 0x11), before, "rows changed after the load had failed");
}

#[test]
fn f05_after_p_write_to_a_stopped_mooncake_has_timed_out_no_newer_byte_lands_there() {
    let blocks = u64::from(MANY);
    let mut options = NodeOptions::new("prefill", Side::Prefill);
    (options.blocks, options.write_timeout_ms) = (MANY, 2_000);
    let mut p = TestNode::start(options);
    let row = p.options().row_bytes();
    fill(&p, 0..MANY, 0x11);
    let mut memory = Mooncake::target(4 * blocks * row);
    let mut control = StockDecode::connect(&p.address());
    let mut pull = pointed_at(pull("d32_ok_1"), &memory.session, memory.address, blocks);
    // One transfer beforehand, as in `warm_up`.
    let mut warm = pull.clone();
    warm.requests[0].transfer_id = "warm".into();
    warm.requests[0].groups = vec![BlockList::run(0, 1)];
    p.hold("warm", "warm", &[0][..]);
    assert!(control.pull(&stock_bytes(&warm)).ok.is_some());
    assert_eq!(p.send_end("warm"), Ended::Sent);

    pull.requests[0].groups = vec![BlockList::run(0, MANY)];
    p.hold("a", "fake0", BlockList::run(0, MANY));
    memory.process().stop();
    let reply = control.pull(&stock_bytes(&pull));
    assert_eq!(reply.ok, None, "nothing arrived: {reply:?}");
    assert!(matches!(p.send_end("a"), Ended::Failed(_)));
    fill(&p, 0..MANY, 0x22);

    memory.process().proceed();
    // A later transfer arrives whole: what was on its way before it has passed.
    let mut later = pull.clone();
    later.requests[0].transfer_id = "later".into();
    later.requests[0].groups = vec![BlockList::run(MANY - 1, 1)];
    fill(&p, 3..4, 0x33);
    p.hold("b", "later", &[3][..]);
    let reply = control.pull(&stock_bytes(&later));
    assert!(reply.ok.is_some(), "{reply:?}");
    assert_eq!(memory.count(0, 4 * blocks * row, 0x22), 0, "bytes from after the error");
    assert_eq!(memory.count(0, 4 * blocks * row, 0x33), 4 * row);
}

#[test]
fn g02_a_p_that_is_stopped_mid_write_and_continued_hits_nothing_of_d_reused_rows() {
    let server = bootstrap();
    let mut p = NodeProcess::start(PROGRAM, &prefill(&server));
    let mut options = decode();
    options.load_timeout_ms = 3_000;
    let mut d = TestNode::start(options);
    p.fill((0, MANY), 0x11);
    // P may end its write before it stands still; then once more.
    let stopped_midway = (0..5).any(|turn| {
        let transfer = format!("a{turn}");
        matches!(load_from_stopped(&transfer, &mut p, &mut d, &server), LoadEnd::Failed(_))
    });
    assert!(stopped_midway, "P was never stopped within a write");
    // A later transfer has arrived whole: whatever was on its way has passed.
    p.fill((MANY, 1), 0x33);
    p.hold("b", "b", (MANY, 1));
    d.load("b", "b", ("prefill", &server.url()), &[MANY][..]);
    assert_eq!(d.load_end("b"), LoadEnd::Loaded);
    let whole = usize::try_from(u64::from(MANY) * 4 * d.options().row_bytes()).expect("fits");
    assert_eq!(count(&d, 0..MANY, 0x77), whole, "a late write changed reused rows");
}

/// Stops P once the first bytes of a load have landed, waits for the load's end, uses its rows
/// for something else, and lets P go on until it has ended too.
fn load_from_stopped(
    transfer: &str,
    p: &mut NodeProcess,
    d: &mut TestNode,
    server: &BootstrapServer,
) -> LoadEnd {
    d.load(transfer, transfer, ("prefill", &server.url()), BlockList::run(0, MANY));
    p.process().send(&serde_json::json!({
        "op": "hold", "request": transfer, "transfer": transfer, "start": 0, "len": MANY,
    }));
    eventually("the first bytes land", || (0..4).any(|layer| d.row(layer, 0)[0] == 0x11));
    p.process().stop();
    let end = d.load_end(transfer);
    fill(d, 0..MANY, 0x77);
    p.process().proceed();
    p.process().answer(kvbaton_tests::PATIENCE);
    p.end(transfer);
    end
}
