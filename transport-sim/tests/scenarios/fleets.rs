//! Fleets whose engines differ, or are too many.

use crate::support::{Fact, Meets, Seen, reaches};
use kvbaton_transport_sim::campaign::coverage::State;
use kvbaton_transport_sim::history::{Event, Lane, What};
use std::collections::{BTreeMap, BTreeSet};

/// So many ranks of one engine wrote to one rank of the other side.
fn writers_of_one_rank(events: &[Event], ranks: usize) -> bool {
    let mut writers = BTreeMap::<_, BTreeSet<_>>::new();
    for event in events {
        let (Lane::Node(node), What::WriteStarted { to, .. }) = (event.lane, &event.what) else {
            continue;
        };
        writers.entry((node.engine, to.clone())).or_default().insert(node.rank);
    }
    writers.values().any(|it| it.len() >= ranks)
}

/// One rank wrote to so many ranks of one engine.
fn readers_of_one_rank(events: &[Event], ranks: usize) -> bool {
    let mut readers = BTreeMap::<_, BTreeSet<_>>::new();
    for event in events {
        let (Lane::Node(node), What::WriteStarted { to, .. }) = (event.lane, &event.what) else {
            continue;
        };
        let engine = kvbaton_transport_sim::sim::names::engine_of(&to.host);
        readers.entry((node, engine)).or_default().insert(to.host.clone());
    }
    readers.values().any(|it| it.len() >= ranks)
}

#[test]
fn l05_l08_eviction_storm() {
    reaches(
        "eviction-storm",
        &[Fact("layout miss"), Fact("resend after miss"), Fact("pull without layout")],
    );
}

#[test]
fn l08_p05_z01_full_tables() {
    reaches(
        "full-tables",
        &[
            Fact("load failed: Prefill(Overloaded)"),
            Fact("layout miss"),
            Fact("load ended: Loaded"),
        ],
    );
}

#[test]
fn a04_p07_p08_p09_f04_f22_unequal_tp() {
    reaches(
        "unequal-tp",
        &[
            Seen("four ranks write to one", |it| writers_of_one_rank(it, 4)),
            Seen("one rank writes to four", |it| readers_of_one_rank(it, 4)),
            Fact("load failed: Prefill(WriteFailed)"),
            Fact("load ended: Dropped"),
        ],
    );
}

#[test]
fn a02_p07_p08_f44_unequal_pp() {
    reaches(
        "unequal-pp",
        &[
            Seen("two stages write to one", |it| writers_of_one_rank(it, 2)),
            Seen("one stage writes to two", |it| readers_of_one_rank(it, 2)),
            Fact("load failed: Prefill(WriteFailed)"),
        ],
    );
}

#[test]
fn a02_a04_p08_f44_unequal_both() {
    reaches(
        "unequal-both",
        &[
            Seen("eight ranks write to one", |it| writers_of_one_rank(it, 8)),
            Seen("one rank writes to eight", |it| readers_of_one_rank(it, 8)),
            Fact("load ended: Loaded"),
        ],
    );
}

#[test]
fn a04_p07_unequal_tp_mla() {
    reaches(
        "unequal-tp-mla",
        &[
            Seen("one rank writes to two", |it| readers_of_one_rank(it, 2)),
            Fact("load ended: Loaded"),
        ],
    );
}

#[test]
fn g03_s04_f32_adapter() {
    reaches(
        "adapter",
        &[
            Meets("sleep", State::Written),
            Fact("wake"),
            Fact("revoke while a write was landing"),
            Fact("load ended: Dropped"),
            Fact("compared bytes"),
        ],
    );
}
