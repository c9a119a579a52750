//! Processes that die and come back, or do not.

use crate::support::{Fact, Meets, Seen, reaches};
use kvbaton_transport_sim::campaign::coverage::State;
use kvbaton_transport_sim::history::{Answer, Event, Lane, LoadFact, What};
use std::collections::BTreeSet;

/// A request that came after a happening of that kind had ended was answered with tokens.
fn served_after(events: &[Event], what: &str) -> bool {
    let over = |it: &&Event| matches!(&it.what, What::Happens { begins: false, text, .. } if text.starts_with(what));
    let Some(over) = events.iter().rfind(over) else { return false };
    let came = |event: &Event| match event.what {
        What::Submitted { request, attempt, .. } if event.at > over.at => Some((request, attempt)),
        _ => None,
    };
    let came: Vec<_> = events.iter().filter_map(came).collect();
    events.iter().any(|it| match it.what {
        What::Answered { request, attempt, answer: Answer::Tokens { .. } } => {
            came.contains(&(request, attempt))
        }
        _ => false,
    })
}

/// A node of a later life has loaded something.
fn loads_in_a_later_life(events: &[Event]) -> bool {
    events.iter().any(|it| match (&it.lane, &it.what) {
        (Lane::Node(node), What::LoadEnded { end: LoadFact::Loaded, .. }) => node.life > 0,
        _ => false,
    })
}

#[test]
fn p12_l09_f13_f60_f62_restart_prefill() {
    reaches(
        "restart-prefill",
        &[
            Meets("restart", State::Held),
            Meets("restart", State::Writing),
            Fact("load failed: UnknownEngine"),
            Seen("loads from a P that restarted", |it| served_after(it, "restart")),
        ],
    );
}

#[test]
fn p12_l11_f13_f26_restart_decode() {
    reaches(
        "restart-decode",
        &[
            Meets("restart", State::Written),
            Meets("restart", State::LoadingWithout),
            Fact("send ended: Expired"),
            Seen("loads of a D that restarted", loads_in_a_later_life),
        ],
    );
}

#[test]
fn p12_l09_l11_f60_restart_both() {
    reaches(
        "restart-both",
        &[
            Meets("restart", State::Writing),
            Meets("restart", State::Written),
            Seen("loads between engines that restarted", |it| {
                loads_in_a_later_life(it) && served_after(it, "restart")
            }),
        ],
    );
}

#[test]
fn p12_f69_restart_elsewhere() {
    reaches(
        "restart-elsewhere",
        &[
            Fact("load failed: Unreachable"),
            Seen("loads after it", |it| served_after(it, "restart elsewhere")),
        ],
    );
}

#[test]
fn p12_f69_moved() {
    reaches(
        "moved",
        &[
            Fact("load failed: Unreachable"),
            Seen("loads from where it is now", |it| served_after(it, "move")),
        ],
    );
}

#[test]
fn p12_l09_l11_rolling_restart() {
    reaches(
        "rolling-restart",
        &[
            Seen("every engine in its second life", |events| {
                let second = |it: &Event| match (&it.lane, &it.what) {
                    (Lane::Node(node), What::Started { .. }) if node.life > 0 => Some(node.engine),
                    _ => None,
                };
                events.iter().filter_map(second).collect::<BTreeSet<_>>().len() == 4
            }),
            Seen("loads after all of them", |it| served_after(it, "restart")),
        ],
    );
}

#[test]
fn p04_p08_p12_g02_swizzle() {
    reaches(
        "swizzle",
        &[
            Meets("stop", State::Stopped),
            Meets("stop", State::Writing),
            Meets("stop", State::Written),
            Seen("loads after it", |it| served_after(it, "stop")),
        ],
    );
}

#[test]
fn z03_p03_p04_f05_stopped_decode() {
    reaches(
        "stopped-decode",
        &[
            Meets("stop", State::Written),
            Fact("write failed, not settled"),
            Fact("load failed: Prefill(TimedOut)"),
            Seen("loads of the other D meanwhile", |events| {
                let stopped = events.iter().find_map(|it| match (&it.lane, &it.what) {
                    (Lane::Node(node), What::Stopped) => Some((node.engine, it.at)),
                    _ => None,
                });
                let goes_on = |it: &&Event| matches!(it.what, What::Continued);
                let Some((engine, from)) = stopped else { return false };
                let to = events.iter().find(goes_on).map_or(u64::MAX, |it| it.at);
                events.iter().any(|it| match (&it.lane, &it.what) {
                    (Lane::Node(node), What::LoadEnded { end: LoadFact::Loaded, .. }) => {
                        node.engine != engine && it.at > from + 200_000_000 && it.at < to
                    }
                    _ => false,
                })
            }),
        ],
    );
}

#[test]
fn p12_p06_f13_f26_one_peer_dead() {
    reaches(
        "one-peer-dead",
        &[
            Meets("kill for good", State::Held),
            Meets("kill for good", State::Written),
            Fact("send ended: Expired"),
            Seen("the others go on", |it| served_after(it, "kill for good")),
        ],
    );
}

#[test]
fn p12_f25_f63_bootstrap_restarts() {
    reaches(
        "bootstrap-restarts",
        &[
            Fact("load failed: UnknownEngine"),
            Seen("loads once P has announced itself again", |it| {
                served_after(it, "forget directory")
            }),
        ],
    );
}
