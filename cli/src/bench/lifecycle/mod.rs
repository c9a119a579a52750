//! `kvbaton bench lifecycle`: two real engines that are paused, put to sleep, reset and
//! updated under load.

mod answers;
mod case;
mod cases;
mod count;
mod cycles;
mod setup;
mod traffic;

use super::progress;
use super::table::Table;
use anyhow::{Result, bail};
use case::CaseResult;
use cycles::CyclesResult;
pub use setup::LifecycleArgs;
use setup::Policy;

pub(super) fn run(args: &LifecycleArgs) -> Result<()> {
    let wanted = |name: &str| name.contains(&args.only);
    let cases: Vec<_> = cases::all().into_iter().filter(|case| wanted(&case.name)).collect();
    let work = cases.len() * args.policy.each().len() * args.requests as usize;
    let bar = progress::bar(work + args.cycles as usize);
    bar.set_message("the answers");
    let mut answers = args.answers(args.requests as usize)?;
    let mut results = Vec::new();
    let mut done = 0;
    for &policy in args.policy.each() {
        for case in &cases {
            bar.set_message(format!("{} ({})", case.name, policy.name()));
            let mut at = |ended| bar.set_position(done + ended);
            let result = case::run(args, &mut answers, case, policy, &mut at);
            done += u64::from(args.requests);
            tell(args, &result, &mut results)?;
        }
    }
    if wanted("before D pulls") && args.policy != Policy::Recompute {
        bar.set_message("P waits for D");
        tell(args, &case::wait_for_d(args, &mut answers), &mut results)?;
    }
    let cycles = (args.cycles > 0).then(|| {
        bar.set_message("cycles of sleep and wake");
        cycles::run(args, &mut answers, &mut |cycle| bar.set_position(done + cycle))
    });
    bar.finish_and_clear();
    if args.json {
        if let Some(cycles) = &cycles {
            println!("{}", serde_json::to_string(cycles)?);
        }
    } else {
        print(&results, cycles.as_ref());
    }
    let wrong = results.iter().filter(|it| !it.is_right()).count();
    let wrong = wrong + usize::from(cycles.is_some_and(|it| !it.is_right()));
    if wrong > 0 {
        bail!("{wrong} of the runs were not right; see above");
    }
    Ok(())
}

fn tell(args: &LifecycleArgs, result: &CaseResult, results: &mut Vec<CaseResult>) -> Result<()> {
    if args.json {
        println!("{}", serde_json::to_string(result)?);
    }
    results.push(result.clone());
    Ok(())
}

fn print(results: &[CaseResult], cycles: Option<&CyclesResult>) {
    let heading = [
        "case",
        "policy",
        "requests",
        "right",
        "recomputed",
        "retried",
        "aborted",
        "failed",
        "down ms",
        "up ms",
        "KV+weights MiB",
        "processes MiB",
    ];
    let mut table = Table::new(&heading);
    for it in results {
        table.row(vec![
            it.case.clone(),
            it.policy.to_owned(),
            it.requests.to_string(),
            it.right.to_string(),
            it.recomputed.to_string(),
            it.retried.to_string(),
            it.aborted.to_string(),
            (it.failed + it.wrong).to_string(),
            format!("{:.1}", it.down_ms),
            format!("{:.1}", it.up_ms),
            format!("{} → {}", mib(it.awake_bytes), mib(it.asleep_bytes)),
            format!("{} → {}", mib(it.awake_process_bytes), mib(it.asleep_process_bytes)),
        ]);
    }
    table.print();
    for it in results {
        for problem in &it.problems {
            println!("WRONG: {} ({}): {problem}", it.case, it.policy);
        }
    }
    let Some(it) = cycles else { return };
    println!(
        "{} cycles of sleep and wake ({}): {} requests, {} right, {} recomputed, {} retried, \
         {} failed; sleep {:.1} ms, wake {:.1} ms on average",
        it.cycles,
        it.policy,
        it.requests,
        it.right,
        it.recomputed,
        it.retried,
        it.failed + it.wrong,
        it.sleep_ms,
        it.wake_ms
    );
    for (slot, name) in ["P", "D"].into_iter().enumerate() {
        println!(
            "  {name}: asleep {} MiB early, {} late; awake at most {} early, {} late; KV asleep {}",
            mib(it.asleep_early[slot]),
            mib(it.asleep_late[slot]),
            mib(it.awake_early[slot]),
            mib(it.awake_late[slot]),
            mib(it.kv_asleep),
        );
    }
    for problem in &it.problems {
        println!("WRONG: cycles: {problem}");
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}
