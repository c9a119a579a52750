//! The layout travels once per P rank.

use crate::receiver_driver::{FIRST, Kind, ReceiverDriver, SECOND, address, reply};
use kvbaton_core::ids::LayoutId;
use kvbaton_core::receiver::{LoadEnd, LoadFailureReason, ReceiverConfig};
use kvbaton_core::sender::PullId;
use kvbaton_core::wire::{Reply, Status};

const OURS: &[&[Kind]] = &[&[Kind::Ours]];

/// A D that knows P, with the first pull out.
fn pulling() -> ReceiverDriver {
    let mut d = ReceiverDriver::new();
    d.load("a");
    d.discover(OURS);
    d
}

fn has_layout(d: &ReceiverDriver, pull: PullId) -> bool {
    d.pulls[&pull].pull.layout.is_some()
}

fn finish(d: &mut ReceiverDriver, name: &str, echo: LayoutId) {
    let pull = d.pull_to(0, 0);
    let ok = Some(vec![crate::names::request(name)]);
    d.reply(pull, Reply { ok, layout_id: echo, ..reply(Status::Finish) });
    d.revoke_all();
}

/// Loads `name` and tells whether the layout went along.
fn next_has_layout(d: &mut ReceiverDriver, name: &str) -> bool {
    d.load(name);
    has_layout(d, d.pull_to(0, 0))
}

#[test]
fn l04_the_layout_is_left_out_only_after_an_echo_of_the_current_id() {
    let mut d = pulling();
    assert!(has_layout(&d, d.pull_to(0, 0)));
    assert_eq!(d.pulls[&d.pull_to(0, 0)].pull.layout_id, FIRST);
    finish(&mut d, "a", FIRST);
    assert!(!next_has_layout(&mut d, "b"));
    assert_eq!(d.pulls[&d.pull_to(0, 0)].pull.layout_id, FIRST, "the id always goes along");
}

#[test]
fn l04_an_echo_counts_for_the_address_that_gave_it() {
    let mut d = ReceiverDriver::new();
    d.load("a");
    d.discover(&[&[Kind::Ours], &[Kind::Ours]]);
    let pull = d.pull_to(0, 0);
    let ok = Some(vec![crate::names::request("a")]);
    d.reply(pull, Reply { ok, layout_id: FIRST, ..reply(Status::Finish) });
    d.load("b");
    assert!(!has_layout(&d, d.pull_to(0, 0)));
    assert!(has_layout(&d, d.pull_to(1, 0)));
}

#[test]
fn l07_a_p_that_never_echoes_gets_the_layout_on_every_pull() {
    let mut d = pulling();
    finish(&mut d, "a", LayoutId::NONE);
    for name in ["b", "c", "d"] {
        assert!(next_has_layout(&mut d, name));
        finish(&mut d, name, LayoutId::NONE);
    }
}

#[test]
fn l05_a_miss_is_answered_once_with_the_layout_and_a_second_miss_fails_the_load() {
    let mut d = pulling();
    finish(&mut d, "a", FIRST);
    d.load("b");
    let first = d.pull_to(0, 0);
    d.reply(first, reply(Status::LayoutMiss));
    let second = d.pull_to(0, 0);
    assert_ne!(first, second);
    assert!(has_layout(&d, second));
    assert_eq!(d.pulls[&second].pull.extension.as_ref().unwrap().incarnation.0, 77);
    d.load("c");
    assert!(has_layout(&d, d.pull_to(0, 0)), "the echo is forgotten");
    d.reply(second, reply(Status::LayoutMiss));
    d.revoke_all();
    assert_eq!(d.failure("b"), Some(LoadFailureReason::Refused));
    assert_eq!(d.ends("c"), []);
}

#[test]
fn l05_a_load_that_missed_and_was_repeated_ends_well() {
    let mut d = pulling();
    finish(&mut d, "a", FIRST);
    d.load("b");
    d.reply(d.pull_to(0, 0), reply(Status::LayoutMiss));
    finish(&mut d, "b", FIRST);
    assert_eq!(d.ends("b"), [LoadEnd::Loaded]);
    assert!(!next_has_layout(&mut d, "c"));
}

#[test]
fn l05_only_loads_that_still_run_are_repeated_after_a_miss() {
    let mut d = pulling();
    finish(&mut d, "a", FIRST);
    let specs = ["b", "c"].map(|name| d.spec(name));
    for spec in specs {
        d.accept(spec).unwrap();
    }
    d.flush();
    let pull = d.pull_to(0, 0);
    d.drop_load("b");
    d.reply(pull, reply(Status::LayoutMiss));
    let again: Vec<_> =
        d.pulls[&d.pull_to(0, 0)].pull.requests.iter().map(|it| it.request_id.clone()).collect();
    assert_eq!(again, [crate::names::request("c")]);
    d.drop_load("c");
    let sent = d.sent.len();
    d.reply(pull, reply(Status::LayoutMiss));
    assert_eq!(d.sent.len(), sent, "a late miss of a closed pull sends nothing");
}

#[test]
fn l08_forgotten_echoes_cost_a_layout_and_no_more() {
    let mut d =
        ReceiverDriver::with(ReceiverConfig { max_peers: 1, ..ReceiverConfig::default() }, 1, 2);
    d.load("a");
    d.discover(&[&[Kind::Ours, Kind::Ours, Kind::Ours]]);
    for stage in 0..3 {
        let pull = d.pull_to(0, stage);
        let ok = Some(vec![crate::names::request("a")]);
        d.reply(pull, Reply { ok, layout_id: FIRST, ..reply(Status::Finish) });
    }
    d.load("b");
    let with_layout = |stage| has_layout(&d, d.pull_to(0, stage));
    assert_eq!([0, 1, 2].map(with_layout), [true, true, false], "only the last one is kept");
}

#[test]
fn l09_a_new_registration_forgets_every_echo() {
    for unregistered in [true, false] {
        let mut d = pulling();
        finish(&mut d, "a", FIRST);
        if unregistered {
            d.unregister();
        }
        d.register(SECOND);
        assert!(next_has_layout(&mut d, "b"));
        let pull = &d.pulls[&d.pull_to(0, 0)].pull;
        assert_eq!(pull.layout_id, SECOND);
        assert_eq!(pull.extension.as_ref().unwrap().generation.0, SECOND.0);
    }
}

#[test]
fn l10_a_late_echo_of_an_older_id_does_not_acknowledge_the_current_one() {
    let mut d = pulling();
    let specs = ["b", "c"].map(|name| d.spec(name));
    for spec in specs {
        d.accept(spec).unwrap();
    }
    d.flush();
    let late = d.pull_to(0, 0);
    d.register(SECOND); // the pull is still open when the memory is registered anew
    d.reply(late, Reply { layout_id: FIRST, ..reply(Status::Continue) });
    assert!(next_has_layout(&mut d, "d"));
    d.reply(late, Reply { layout_id: SECOND, ..reply(Status::Continue) });
    assert!(!next_has_layout(&mut d, "e"));
}

#[test]
#[should_panic(expected = "layout ids are odd")]
fn l01_an_even_layout_id_is_a_mistake_of_the_caller() {
    ReceiverDriver::new().register(LayoutId(2));
}

#[test]
fn f69_a_p_that_went_away_is_forgotten() {
    let mut d = pulling();
    finish(&mut d, "a", FIRST);
    d.load("b");
    d.pull_failed(d.pull_to(0, 0), false);
    d.revoke_all();
    assert_eq!(d.failure("b"), Some(LoadFailureReason::Unreachable));
    d.load("c");
    assert_eq!(d.asked.len(), 1, "the bootstrap server is asked again");
    d.discover(OURS);
    let pull = d.pull_to(0, 0);
    assert!(has_layout(&d, pull));
    assert_eq!(d.pulls[&pull].address, address(0, 0));
}
