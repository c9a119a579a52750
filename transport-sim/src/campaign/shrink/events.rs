//! Fewer requests, faults and sites: delta debugging.

use super::Search;
use crate::plan::{Plan, Quirk};
use std::collections::BTreeSet;

/// One thing that can be taken out of a plan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Happening(usize),
    Site(String),
    Request(usize),
}

/// Takes parts out while the plan fails: halves of what is there first, then smaller pieces,
/// one part at a time in the end.
pub fn fewer(search: &mut Search<'_>) {
    let whole = search.plan.clone();
    let sites = whole.sites.iter().cloned().map(Part::Site);
    let happenings = (0..whole.happenings.len()).map(Part::Happening);
    let requests = (0..whole.requests.len()).map(Part::Request);
    let mut parts: Vec<_> = happenings.chain(sites).chain(requests).collect();
    let mut pieces = 2;
    while !parts.is_empty() && !search.is_over() {
        let size = parts.len().div_ceil(pieces);
        let mut removed = false;
        let mut at = 0;
        while at < parts.len() {
            let end = (at + size).min(parts.len());
            let mut rest = parts.clone();
            rest.drain(at..end);
            if search.attempt(only(&whole, &rest)) {
                (parts, removed) = (rest, true);
            } else {
                at = end;
            }
        }
        if size == 1 && !removed {
            break;
        }
        pieces = if size == 1 { parts.len().max(1) } else { (pieces * 2).min(parts.len().max(2)) };
    }
}

/// The plan with these parts alone.
fn only(plan: &Plan, parts: &[Part]) -> Plan {
    let parts: BTreeSet<_> = parts.iter().cloned().collect();
    let mut index = 0;
    let mut rest = plan.clone();
    rest.happenings.retain(|_| {
        index += 1;
        parts.contains(&Part::Happening(index - 1))
    });
    index = 0;
    rest.requests.retain(|_| {
        index += 1;
        parts.contains(&Part::Request(index - 1))
    });
    rest.sites.retain(|it| parts.contains(&Part::Site(it.clone())));
    mend(&mut rest);
    rest
}

/// Requests that copied one that is gone are ordinary ones.
fn mend(plan: &mut Plan) {
    let ids: BTreeSet<_> = plan.requests.iter().map(|it| it.id).collect();
    for request in &mut plan.requests {
        if let Quirk::SameTransferAs(other) | Quirk::SameIdsAs(other) = request.quirk
            && !ids.contains(&other)
        {
            request.quirk = Quirk::None;
        }
    }
}
