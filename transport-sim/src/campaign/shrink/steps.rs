//! Simpler plans: calm odds, fewer engines, earlier times, shorter prompts.

use super::Search;
use crate::plan::{Bounds, Happening, Kind, ModelPlan, Odds, Plan, Quirk};

/// What often takes much away at once.
pub fn large(search: &mut Search<'_>) {
    search.change(|plan| plan.odds = plan.odds.calmed());
    search.change(|plan| plan.sites.clear());
    search.change(|plan| plan.happenings.clear());
}

/// One property after the other.
pub fn simpler(search: &mut Search<'_>) {
    odds(search);
    search.change(|plan| plan.bounds = Bounds::default());
    search.change(|plan| plan.fleet.model = ModelPlan::Dense);
    engines(search);
    requests(search);
    happenings(search);
    search.change(halve_times);
}

fn odds(search: &mut Search<'_>) {
    let calm: [fn(&mut Odds); 8] = [
        |it| it.loss = 0,
        |it| it.duplication = 0,
        |it| (it.reordering, it.delay_ms) = (0, 0),
        |it| it.reset = 0,
        |it| it.write_fails = 0,
        |it| (it.write_stalls, it.stall_ms) = (0, 0),
        |it| it.stale_lands = false,
        |it| {
            let Odds { latency_min_ms, latency_max_ms, piece, bandwidth, .. } = Odds::default();
            (it.latency_min_ms, it.latency_max_ms) = (latency_min_ms, latency_max_ms);
            (it.piece, it.bandwidth) = (piece, bandwidth);
        },
    ];
    for calm in calm {
        search.change(|plan| calm(&mut plan.odds));
    }
}

fn engines(search: &mut Search<'_>) {
    for index in (0..search.plan.fleet.engines.len()).rev() {
        search.change(|plan| drop_engine(plan, index));
    }
    search.change(|plan| plan.fleet.engines.iter_mut().for_each(|it| (it.tp, it.pp) = (1, 1)));
    for index in 0..search.plan.fleet.engines.len() {
        search.change(|plan| plan.fleet.engines[index].tp = 1);
        search.change(|plan| plan.fleet.engines[index].pp = 1);
        search.change(|plan| plan.fleet.engines[index].drift_ppm = 0);
        search.change(|plan| plan.fleet.engines[index].kind = Kind::Ours);
    }
}

/// Removes an engine that nothing names; the ones after it move up.
fn drop_engine(plan: &mut Plan, index: usize) {
    let used = engines_of(plan).iter().any(|it| usize::from(**it) == index);
    if used || plan.fleet.engines.len() <= 2 {
        return;
    }
    plan.fleet.engines.remove(index);
    for engine in engines_of(plan) {
        if usize::from(*engine) > index {
            *engine -= 1;
        }
    }
}

/// Every place of a plan that names an engine.
fn engines_of(plan: &mut Plan) -> Vec<&mut u16> {
    let mut names = Vec::new();
    for request in &mut plan.requests {
        names.extend([&mut request.prefill, &mut request.decode]);
    }
    for planned in &mut plan.happenings {
        names.extend(planned.what.engines_mut());
    }
    names
}

fn requests(search: &mut Search<'_>) {
    search.change(|plan| plan.requests.iter_mut().for_each(|it| it.retries = 0));
    search.change(|plan| plan.requests.iter_mut().for_each(|it| it.max_tokens = 1));
    for index in 0..search.plan.requests.len() {
        search.change(|plan| plan.requests[index].quirk = Quirk::None);
        search.change(|plan| plan.requests[index].leaves_at_ms = None);
        search.change(|plan| plan.requests[index].retries = 0);
        search.change(|plan| plan.requests[index].max_tokens = 1);
        search.change(|plan| plan.requests[index].shared_len = 0);
        search.change(|plan| plan.requests[index].at_ms /= 2);
        let shorter = |plan: &mut Plan| {
            let request = &mut plan.requests[index];
            request.prompt_len = (request.prompt_len / 2).max(1);
            request.shared_len = request.shared_len.min(request.prompt_len);
        };
        while search.change(shorter) {}
    }
}

fn happenings(search: &mut Search<'_>) {
    for index in 0..search.plan.happenings.len() {
        while search.change(|plan| halve_duration(&mut plan.happenings[index].what)) {}
        search.change(|plan| {
            plan.happenings[index].at_ms /= 2;
            plan.happenings.sort_by_key(|it| it.at_ms);
        });
    }
}

fn halve_duration(what: &mut Happening) {
    let duration = match what {
        Happening::Kill { down_ms: Some(duration), .. }
        | Happening::Move { down_ms: duration, .. } => duration,
        Happening::Stop { for_ms, .. }
        | Happening::Cut { for_ms, .. }
        | Happening::Slow { for_ms, .. }
        | Happening::Pause { for_ms, .. }
        | Happening::Sleep { for_ms, .. }
        | Happening::ReleaseKv { for_ms, .. }
        | Happening::Reregister { for_ms, .. }
        | Happening::UpdateWeights { for_ms, .. } => for_ms,
        Happening::AtOrder { then, .. } => return halve_duration(then),
        Happening::Kill { down_ms: None, .. }
        | Happening::Resume { .. }
        | Happening::AbortTransfers { .. }
        | Happening::AbortRequests { .. }
        | Happening::ResetCache { .. }
        | Happening::FailOrder { .. }
        | Happening::Reset { .. }
        | Happening::ForgetDirectory { .. }
        | Happening::ReleaseAll { .. } => return,
    };
    *duration = (*duration / 2).max(1);
}

fn halve_times(plan: &mut Plan) {
    for request in &mut plan.requests {
        request.at_ms /= 2;
        request.leaves_at_ms = request.leaves_at_ms.map(|it| it / 2);
    }
    plan.happenings.iter_mut().for_each(|it| it.at_ms /= 2);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::fake;
    use crate::plan::{EnginePlan, Side};

    #[test]
    fn engines_that_nothing_names_go_and_the_others_keep_their_roles() {
        let mut plan = fake::plan(1);
        plan.fleet.engines.insert(1, EnginePlan::new(Side::Prefill));
        for engine in engines_of(&mut plan) {
            *engine *= 2;
        }
        let mut smaller = plan.clone();
        drop_engine(&mut smaller, 1);
        assert_eq!(smaller, fake::plan(1));
        drop_engine(&mut plan, 0);
        assert_eq!(plan.fleet.engines.len(), 3);
    }
}
