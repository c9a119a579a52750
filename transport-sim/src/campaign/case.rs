//! One run on a thread of its own, panics included.

use super::suite::Run;
use crate::oracles::Violation;
use crate::plan::Plan;
use crate::world::{Outcome, RunOptions};
use std::any::Any;
use std::thread::{Builder, scope};

/// What objects when a run panics where no world can catch it.
pub const NO_PANIC: &str = "no-panic";

const STACK: usize = 8 << 20;

/// Makes a plan and runs it on a fresh thread, so that nothing thread-local is carried from
/// one run into the next. A panic becomes a violation of [`NO_PANIC`]; the plan is missing
/// when making it panicked.
///
/// # Panics
/// When the system gives no thread.
pub fn run_alone(
    run: &Run,
    make: impl FnOnce() -> Plan + Send,
    options: &RunOptions,
) -> (Option<Plan>, Outcome) {
    let mut plan = None;
    let slot = &mut plan;
    let outcome = scope(|threads| {
        let work = move || run(slot.insert(make()), options);
        let thread = Builder::new().name("run".into()).stack_size(STACK);
        thread.spawn_scoped(threads, work).expect("a thread").join()
    });
    let outcome = outcome.unwrap_or_else(|payload| panicked(&*payload));
    (plan, outcome)
}

fn panicked(payload: &(dyn Any + Send)) -> Outcome {
    let text = payload
        .downcast_ref::<&str>()
        .map(|it| (*it).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".into());
    let violation = Violation { oracle: NO_PANIC, rules: &[], text, event: 0 };
    Outcome { hash: 0, events: Vec::new(), virtual_ns: 0, violation: Some(violation) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::fake;

    #[test]
    fn a_panic_is_a_violation_and_the_next_run_is_untouched() {
        let bad = |_: &Plan, _: &RunOptions| -> Outcome { panic!("no good") };
        let (plan, outcome) = run_alone(&bad, || fake::plan(1), &RunOptions::default());
        let violation = outcome.violation.expect("a violation");
        assert_eq!((violation.oracle, violation.text.as_str()), (NO_PANIC, "no good"));
        assert_eq!(plan, Some(fake::plan(1)));
        let (plan, outcome) = run_alone(&fake::run, || panic!("no plan"), &RunOptions::default());
        assert!(plan.is_none());
        assert_eq!(outcome.violation.expect("a violation").text, "no plan");
    }
}
