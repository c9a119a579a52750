//! Requests of every kind.

use super::build::{BEGIN, fleet};
use super::story::{Story, UNTIL, Which};
use crate::plan::{Happening, ModelPlan, Plan, Quirk, RequestPlan};
use crate::sites;

/// Nothing goes wrong: the strict oracles judge. What `counter-layout-id` and
/// `grant-not-revoked` show in.
pub fn calm(seed: u64) -> Plan {
    let mut story = Story::of("calm", seed, |draw| {
        let model = draw.pick(&[ModelPlan::Dense, ModelPlan::Mla, ModelPlan::Hybrid]);
        fleet(model, draw.few(1, 2), draw.few(1, 3))
    });
    let over = story.draw.pick(&[500, 5_000, 20_000]);
    let count = story.draw.few(5, 25);
    story.more(count, BEGIN, BEGIN + over);
    story.done()
}

/// The same transfer id, or both ids, used again: while the first runs, and after its end. What
/// `grant-from-request` needs.
pub fn duplicates(seed: u64) -> Plan {
    let mut story = Story::new("duplicate-ids", seed, 2, 2).load(20);
    for at in 1..story.plan.requests.len() {
        if !story.draw.one_in(2) {
            continue;
        }
        let earlier = story.draw.few(0, at as u32 - 1);
        // Soon after the one whose ids it has, or long after.
        let soon = story.plan.requests[earlier as usize].at_ms + story.draw.between(0, 200);
        let request = &mut story.plan.requests[at];
        if story.draw.one_in(2) {
            request.at_ms = soon;
        }
        let same_both = story.draw.one_in(2);
        request.quirk =
            if same_both { Quirk::SameIdsAs(earlier) } else { Quirk::SameTransferAs(earlier) };
    }
    story.done()
}

/// Several samples of one prompt (n > 1).
pub fn samples(seed: u64) -> Plan {
    let mut story = Story::new("samples", seed, 2, 2).load(12);
    for request in &mut story.plan.requests {
        if story.draw.one_in(2) {
            request.quirk = Quirk::Samples(story.draw.few(2, 5));
            request.max_tokens = 2;
        }
        if story.draw.one_in(4) {
            request.leaves_at_ms = Some(request.at_ms + story.draw.between(5, 300));
        }
    }
    story.done()
}

/// P's engine releases what it holds at once, or before it holds it; D drops before P is ready.
/// What `early-release-forgotten` and `abort-acked-before-drained` need.
pub fn early_release(seed: u64) -> Plan {
    let mut story = Story::new("early-release", seed, 2, 2).load(24);
    for request in &mut story.plan.requests {
        request.quirk = match story.draw.few(0, 3) {
            0 => Quirk::None,
            1 => Quirk::PrefillLate(story.draw.between(20, 400)),
            _ => Quirk::ReleasedEarly,
        };
        // D's drop is a release that comes before the hold.
        if matches!(request.quirk, Quirk::PrefillLate(_)) {
            request.leaves_at_ms = Some(request.at_ms + story.draw.between(5, 100));
        }
    }
    story.sites(&[sites::HOLD_LATE]);
    story.done()
}

/// Prompts of one token, answers of one: P's only token ends the text, there is least to send.
pub fn one_token(seed: u64) -> Plan {
    let mut story = Story::of("one-token", seed, |draw| {
        let model = draw.pick(&[ModelPlan::Dense, ModelPlan::Mla, ModelPlan::Hybrid]);
        fleet(model, 1, 2)
    })
    .load(20);
    for request in &mut story.plan.requests {
        request.max_tokens = 1;
        request.prompt_len = story.draw.pick(&[1, 1, 2, 4, 5]);
        request.shared_len = request.shared_len.min(request.prompt_len);
        if story.draw.one_in(4) {
            request.quirk = Quirk::DecodeLate(story.draw.between(1, 500));
        }
    }
    story.done()
}

fn hits(scenario: &str, seed: u64, model: ModelPlan) -> Plan {
    let mut story = Story::of(scenario, seed, |_| fleet(model, 2, 1)).load(24);
    for request in &mut story.plan.requests {
        request.family = story.draw.few(0, 1);
        request.prompt_len = story.draw.few(8, 40);
        request.shared_len = match story.draw.few(0, 3) {
            0 => request.prompt_len,
            1 => 0,
            _ => story.draw.few(4, request.prompt_len),
        };
    }
    story.done()
}

/// D has a part of the prompt already, or all of it: what `head-taken-for-tail` needs.
pub fn prefix_hits(seed: u64) -> Plan {
    hits("prefix-hits", seed, ModelPlan::Dense)
}

/// The same where groups differ: full attention, a window, recurrent state.
pub fn hybrid_hits(seed: u64) -> Plan {
    hits("hybrid-prefix-hits", seed, ModelPlan::Hybrid)
}

/// Clients leave at every moment of a request's life, also while it waits for D's blocks: what
/// `empty-pull-unanswered`, `reported-twice` and `early-release-forgotten` need.
pub fn disconnects(seed: u64) -> Plan {
    let mut story = Story::new("disconnects", seed, 2, 2).load(40);
    for engine in story.engines(Which::Decode) {
        story.plan.fleet.engines[usize::from(engine)].blocks = story.draw.few(14, 40);
    }
    let within = story.draw.pick(&[20, 100, 600]);
    for request in &mut story.plan.requests {
        if !story.draw.one_in(4) {
            request.leaves_at_ms = Some(request.at_ms + story.draw.between(0, within));
        }
    }
    if story.draw.one_in(2) {
        story.sites(&[sites::REVOKE_SLOW, sites::EVENTS_LATE]);
    }
    story.done()
}

/// Requests that come to the same P and D in one moment share pulls; some are ready before
/// others, some are dropped, and some of these come again under the ids that they had. What
/// `answers-held-back`, `request-id-aba` and `drop-hits-any-grant` need.
pub fn batches(seed: u64) -> Plan {
    let mut story = Story::new("batches", seed, 1, 2);
    story.plan.odds.bandwidth = story.draw.pick(&[16, 64]);
    story.plan.odds.latency_max_ms = story.draw.pick(&[3, 30, 120]);
    let mut at_ms = BEGIN;
    for _ in 0..4 {
        let decode = story.one(Which::Decode);
        let first = story.plan.requests.len() as u32;
        let size = story.draw.few(3, 6);
        for id in first..first + size {
            let leaves = story.draw.one_in(3);
            let late = story.draw.pick(&[0, 0, 100, 600]);
            story.plan.requests.push(RequestPlan {
                id,
                at_ms,
                family: 0,
                prompt_len: story.draw.few(1, 40),
                shared_len: 0,
                max_tokens: 2,
                prefill: 0,
                decode,
                leaves_at_ms: leaves.then(|| at_ms + story.draw.between(3, 150)),
                retries: 1,
                quirk: if late > 0 { Quirk::PrefillLate(late) } else { Quirk::None },
            });
        }
        again(&mut story, first, first + size);
        at_ms += story.draw.between(300, 1_200);
    }
    story.plan.requests.sort_by_key(|request| (request.at_ms, request.id));
    story.done()
}

/// Those of a batch that are dropped come again, with their ids, while the others go on.
fn again(story: &mut Story, from: u32, to: u32) {
    let left: Vec<_> =
        story.plan.requests.iter().filter(|it| (from..to).contains(&it.id)).cloned().collect();
    let mut id = to;
    for request in left {
        let Some(leaves) = request.leaves_at_ms else { continue };
        // Perhaps while the answer to the first one's drop is under way.
        let most = story.draw.pick(&[2, 4, 60]);
        let at_ms = leaves + story.draw.between(1, most);
        let quirk = Quirk::SameIdsAs(request.id);
        story.plan.requests.push(RequestPlan { id, at_ms, leaves_at_ms: None, quirk, ..request });
        id += 1;
    }
}

/// One half of a request comes later than the other waits, or never: what
/// `write-after-deadline` needs.
pub fn late_halves(seed: u64) -> Plan {
    let mut story = Story::new("late-halves", seed, 2, 2).load(20);
    let bounds = &mut story.plan.bounds;
    (bounds.hold_ms, bounds.load_ms) =
        (story.draw.between(800, 3_000), story.draw.between(1_500, 3_000));
    let (hold, load) = (bounds.hold_ms, bounds.load_ms);
    for request in &mut story.plan.requests {
        request.quirk = match story.draw.few(0, 5) {
            0 => Quirk::None,
            1 => Quirk::NeverPulled,
            2 => Quirk::NeverPrefilled,
            // Around the moment at which the other half gives up.
            3 => Quirk::PrefillLate(load - 700 + story.draw.between(0, 1_700)),
            4 => Quirk::PrefillLate(story.draw.between(1, 500)),
            _ => Quirk::DecodeLate(hold.saturating_sub(story.draw.between(0, 400)) + 200),
        };
    }
    // D's drops do not come through.
    for _ in 0..story.draw.few(0, 2) {
        let (from, to) = (story.one(Which::Decode), story.one(Which::Prefill));
        story.happens(Happening::Cut { from, to, for_ms: 4_000 });
    }
    story.more(6, UNTIL, UNTIL + 2_000);
    story.done()
}
