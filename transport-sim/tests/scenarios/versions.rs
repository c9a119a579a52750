//! Ours, vLLM 0.33's connector and vLLM 0.32's, in every pairing.

use crate::support::{Fact, Seen, reaches};
use kvbaton_transport_sim::history::{Answer, Event, What};

/// A request from the first P to the first D was answered with tokens.
fn the_pair_serves(events: &[Event]) -> bool {
    let pair = |event: &Event| match event.what {
        What::Submitted { request, attempt, prefill: 0, decode: 2 } => Some((request, attempt)),
        _ => None,
    };
    let pair: Vec<_> = events.iter().filter_map(pair).collect();
    events.iter().any(|it| match it.what {
        What::Answered { request, attempt, answer: Answer::Tokens { .. } } => {
            pair.contains(&(request, attempt))
        }
        _ => false,
    })
}

fn pairing(name: &str) {
    let mut points = vec![
        Seen("tokens through the pair", the_pair_serves),
        Fact("compared bytes"),
        Fact("client left"),
        Fact("load ended: Loaded"),
    ];
    let stock = |side: &str| side.starts_with("stock");
    let (prefill, decode) = name.rsplit_once('-').expect("a pairing");
    let prefill = prefill.rsplit('-').next().expect("a kind");
    if stock(prefill) || stock(decode) {
        points.push(Fact("pull from a stock peer"));
    }
    if stock(prefill) {
        points.push(Fact("grant open to stock peers"));
    }
    reaches(name, &points);
}

#[test]
fn l04_g01_ours_to_ours() {
    pairing("mixed-versions-ours-ours");
}

#[test]
fn l04_ours_to_stock_33() {
    pairing("mixed-versions-ours-stock33");
}

#[test]
fn l06_ours_to_stock_32() {
    pairing("mixed-versions-ours-stock32");
}

#[test]
fn g03_p09_stock_33_to_ours() {
    pairing("mixed-versions-stock33-ours");
}

#[test]
fn g03_p09_stock_33_to_stock_33() {
    pairing("mixed-versions-stock33-stock33");
}

#[test]
fn l06_g03_stock_33_to_stock_32() {
    pairing("mixed-versions-stock33-stock32");
}

#[test]
fn l07_g03_p09_stock_32_to_ours() {
    pairing("mixed-versions-stock32-ours");
}

#[test]
fn l07_g03_stock_32_to_stock_33() {
    pairing("mixed-versions-stock32-stock33");
}

#[test]
fn l06_l07_stock_32_to_stock_32() {
    pairing("mixed-versions-stock32-stock32");
}
