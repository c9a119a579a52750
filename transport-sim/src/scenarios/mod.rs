//! Worlds by name. Each makes a plan from a seed and says which rules and failures it pins;
//! the comment on each function says which planted bugs need what it does.

mod build;
mod cycles;
mod draw;
mod fleets;
mod lifecycle;
mod memory;
mod mixed;
mod network;
mod pauses;
mod requests;
mod restarts;
mod story;
mod with_stock;
mod writes;

pub use cycles::plan as cycles;

use crate::campaign::Scenario;
use crate::plan::{Kind, PauseMode, Plan};
use story::Which;

const fn scenario(
    name: &'static str,
    about: &'static str,
    rules: &'static [&'static str],
    make: fn(u64) -> Plan,
) -> Scenario {
    Scenario { name, about, rules, make }
}

/// All scenarios; the first is the swarm.
pub const ALL: &[Scenario] = &[
    scenario(
        "mixed",
        "any fleet, any faults: each run turns some off and gives the rest odds of its own",
        &[],
        mixed::plan,
    ),
    scenario(
        "calm",
        "nothing goes wrong: nothing may be lost, layouts travel once",
        &["L01", "L03", "L04", "G01", "P02", "X01"],
        requests::calm,
    ),
    scenario(
        "restart-prefill",
        "P restarts at its address; some loads still name the process before it",
        &["P12", "L09", "F13", "F60", "F62"],
        restarts::prefill,
    ),
    scenario(
        "restart-decode",
        "D restarts on the same host and port while P holds and writes",
        &["P12", "L11", "F13", "F26"],
        restarts::decode,
    ),
    scenario(
        "restart-both",
        "P and D restart, perhaps at once",
        &["P12", "L09", "L11", "F60"],
        restarts::both,
    ),
    scenario(
        "restart-elsewhere",
        "an engine comes back at another address as another engine",
        &["P12", "F69"],
        restarts::elsewhere,
    ),
    scenario(
        "moved",
        "P comes back at another address under the engine id that it had",
        &["P12", "F69"],
        restarts::moved,
    ),
    scenario(
        "rolling-restart",
        "every engine restarts, one after the other",
        &["P12", "L09", "L11"],
        restarts::rolling,
    ),
    scenario(
        "swizzle",
        "random engines stop one by one and go on in another order",
        &["P04", "P08", "P12", "G02"],
        restarts::swizzle,
    ),
    scenario(
        "stopped-decode",
        "a D that reads no more has more pulls at P than P has slots",
        &["Z03", "P03", "P04", "F05"],
        restarts::stopped_decode,
    ),
    scenario(
        "one-peer-dead",
        "one engine dies for good",
        &["P12", "P06", "F13", "F26"],
        restarts::one_dead,
    ),
    scenario(
        "bootstrap-restarts",
        "bootstrap servers forget, refuse, are slow; a D that knows no P asks",
        &["P12", "F63", "F25"],
        restarts::bootstrap,
    ),
    scenario(
        "partition",
        "nothing passes between the sides for a while",
        &["P04", "P08", "P12", "F18", "F25"],
        network::partition,
    ),
    scenario(
        "asymmetric-partition",
        "one direction is cut",
        &["P04", "P08", "P09", "F25"],
        network::asymmetric,
    ),
    scenario(
        "lossy-network",
        "messages are lost, doubled, overtaken",
        &["P02", "P05", "P08", "L10", "F25"],
        network::lossy,
    ),
    scenario(
        "connection-resets",
        "connections break, or cannot be made",
        &["P02", "P12", "F18"],
        network::resets,
    ),
    scenario(
        "late-trap",
        "a long calm, then one fault",
        &["P12", "S02", "L04"],
        network::late_trap,
    ),
    scenario(
        "slow-writers",
        "writes outlive their timeouts and the holds that they read",
        &["P01", "P03", "P04", "P06", "F05", "F27"],
        writes::slow,
    ),
    scenario(
        "failing-writes",
        "writes fail, or lose their last acknowledgement, with few slots",
        &["P03", "P07", "F04", "F22"],
        writes::failing,
    ),
    scenario(
        "late-pieces",
        "loads are given up while pieces of them fly, and their blocks are used again",
        &["G02", "P09", "F01", "F02"],
        writes::late,
    ),
    scenario(
        "sleep-prefill",
        "P sleeps and wakes with requests held and pulls under way",
        &["S01", "S02", "S05", "L05", "L09", "F32"],
        memory::prefill,
    ),
    scenario(
        "sleep-decode",
        "D sleeps and wakes with loads under way; answers and pieces come after the wake",
        &["S01", "S02", "S04", "L09", "L10", "F32"],
        memory::decode,
    ),
    scenario(
        "sleep-decode-stock-prefill",
        "D sleeps for moments beside a stock P whose answers come after the wake",
        &["L10", "S02", "G03", "F32"],
        memory::decode_of_stock,
    ),
    scenario(
        "sleep-both",
        "all engines sleep at about the same time",
        &["S01", "S02", "S05", "F32"],
        memory::both,
    ),
    scenario(
        "sleep-refused",
        "several ranks sleep together, and one of them cannot",
        &["S01", "S06"],
        memory::refused,
    ),
    scenario(
        "sleep-both-roles",
        "engines of both roles sleep, or fail to, under loads",
        &["S01", "S05"],
        memory::both_roles,
    ),
    scenario(
        "weight-updates",
        "weights change under load",
        &["R04", "R07", "F37"],
        memory::updates,
    ),
    scenario(
        "weight-updates-first",
        "nodes hear of new weights before their engines have taken their blocks back",
        &["R04", "R07"],
        memory::updates_first,
    ),
    scenario(
        "weight-updates-asleep",
        "weights change under load while memory sleeps",
        &["R04", "R07", "S02", "F37"],
        memory::updates_asleep,
    ),
    scenario(
        "pause-abort-prefill",
        "P pauses in mode abort, with or without clearing",
        &["R01", "R03", "P13", "F24"],
        |seed| pauses::plan("pause-abort-prefill", seed, PauseMode::Abort, Which::Prefill),
    ),
    scenario(
        "pause-abort-decode",
        "D pauses in mode abort, with or without clearing",
        &["R01", "R03", "P13", "F24"],
        |seed| pauses::plan("pause-abort-decode", seed, PauseMode::Abort, Which::Decode),
    ),
    scenario(
        "pause-abort-both",
        "P and D pause in mode abort, with or without clearing",
        &["R01", "R03", "P13", "F24"],
        |seed| pauses::plan("pause-abort-both", seed, PauseMode::Abort, Which::Both),
    ),
    scenario(
        "pause-wait-prefill",
        "P pauses in mode wait, with or without clearing",
        &["R01", "R03"],
        |seed| pauses::plan("pause-wait-prefill", seed, PauseMode::Wait, Which::Prefill),
    ),
    scenario(
        "pause-wait-decode",
        "D pauses in mode wait, with or without clearing",
        &["R01", "R03"],
        |seed| pauses::plan("pause-wait-decode", seed, PauseMode::Wait, Which::Decode),
    ),
    scenario(
        "pause-wait-both",
        "P and D pause in mode wait, with or without clearing",
        &["R01", "R03"],
        |seed| pauses::plan("pause-wait-both", seed, PauseMode::Wait, Which::Both),
    ),
    scenario(
        "pause-keep-prefill",
        "P pauses in mode keep, with or without clearing",
        &["R01", "F38"],
        |seed| pauses::plan("pause-keep-prefill", seed, PauseMode::Keep, Which::Prefill),
    ),
    scenario(
        "pause-keep-decode",
        "D pauses in mode keep, with or without clearing",
        &["R01", "F38"],
        |seed| pauses::plan("pause-keep-decode", seed, PauseMode::Keep, Which::Decode),
    ),
    scenario(
        "pause-keep-both",
        "P and D pause in mode keep, with or without clearing",
        &["R01", "F38"],
        |seed| pauses::plan("pause-keep-both", seed, PauseMode::Keep, Which::Both),
    ),
    scenario(
        "lifecycle-steps",
        "an operation is cut short, or fails, at any of its steps, over several ranks",
        &["S01", "S05", "S06", "R05"],
        lifecycle::steps,
    ),
    scenario(
        "sleep-resumed",
        "an engine is resumed while its ranks are being prepared for a sleep",
        &["S06", "R05"],
        lifecycle::resumed,
    ),
    scenario(
        "lifecycle-any",
        "operations of every kind, some of them at once, resumes at any moment",
        &["S01", "S06", "R02", "R05", "R06"],
        lifecycle::any,
    ),
    scenario(
        "resets",
        "P and D are reset under loads; what that cuts short is recomputed",
        &["R03", "R04", "R06"],
        lifecycle::resets,
    ),
    scenario(
        "wait-before-pull",
        "P pauses in mode wait, and clears, before D pulls anything",
        &["R03"],
        lifecycle::drained,
    ),
    scenario(
        "eviction-storm",
        "more D ranks than P keeps layouts of",
        &["L05", "L08"],
        fleets::eviction_storm,
    ),
    scenario(
        "full-tables",
        "every table is tiny and full",
        &["L08", "P05", "Z01"],
        fleets::full_tables,
    ),
    scenario(
        "unequal-tp",
        "P and D have different numbers of TP ranks",
        &["A04", "P07", "P08", "P09", "F04", "F22"],
        fleets::unequal_tp,
    ),
    scenario(
        "unequal-pp",
        "P and D have different numbers of pipeline stages",
        &["A02", "P07", "P08", "F44"],
        fleets::unequal_pp,
    ),
    scenario(
        "unequal-both",
        "TP and PP both differ",
        &["A02", "A04", "P08", "F44"],
        fleets::unequal_both,
    ),
    scenario(
        "unequal-tp-mla",
        "latent KV between different numbers of TP ranks",
        &["A04", "P07"],
        fleets::unequal_mla,
    ),
    scenario(
        "adapter",
        "data planes check remote keys only, grants are fenced",
        &["G03", "S04", "F32"],
        fleets::adapter,
    ),
    scenario(
        "mixed-versions-ours-ours",
        "P runs ours, D runs ours, beside engines of ours",
        &["L04"],
        |seed| fleets::versions("mixed-versions-ours-ours", seed, Kind::Ours, Kind::Ours),
    ),
    scenario(
        "mixed-versions-ours-stock33",
        "P runs ours, D runs stock33, beside engines of ours",
        &["L04"],
        |seed| fleets::versions("mixed-versions-ours-stock33", seed, Kind::Ours, Kind::Stock33),
    ),
    scenario(
        "mixed-versions-ours-stock32",
        "P runs ours, D runs stock32, beside engines of ours",
        &["L06", "L04"],
        |seed| fleets::versions("mixed-versions-ours-stock32", seed, Kind::Ours, Kind::Stock32),
    ),
    scenario(
        "mixed-versions-stock33-ours",
        "P runs stock33, D runs ours, beside engines of ours",
        &["G03", "P09", "L04"],
        |seed| fleets::versions("mixed-versions-stock33-ours", seed, Kind::Stock33, Kind::Ours),
    ),
    scenario(
        "mixed-versions-stock33-stock33",
        "P runs stock33, D runs stock33, beside engines of ours",
        &["G03", "P09", "L04"],
        |seed| {
            fleets::versions("mixed-versions-stock33-stock33", seed, Kind::Stock33, Kind::Stock33)
        },
    ),
    scenario(
        "mixed-versions-stock33-stock32",
        "P runs stock33, D runs stock32, beside engines of ours",
        &["L06", "G03", "P09", "L04"],
        |seed| {
            fleets::versions("mixed-versions-stock33-stock32", seed, Kind::Stock33, Kind::Stock32)
        },
    ),
    scenario(
        "mixed-versions-stock32-ours",
        "P runs stock32, D runs ours, beside engines of ours",
        &["L07", "G03", "P09", "L04"],
        |seed| fleets::versions("mixed-versions-stock32-ours", seed, Kind::Stock32, Kind::Ours),
    ),
    scenario(
        "mixed-versions-stock32-stock33",
        "P runs stock32, D runs stock33, beside engines of ours",
        &["L07", "G03", "P09", "L04"],
        |seed| {
            fleets::versions("mixed-versions-stock32-stock33", seed, Kind::Stock32, Kind::Stock33)
        },
    ),
    scenario(
        "mixed-versions-stock32-stock32",
        "P runs stock32, D runs stock32, beside engines of ours",
        &["L07", "L06", "G03", "P09", "L04"],
        |seed| {
            fleets::versions("mixed-versions-stock32-stock32", seed, Kind::Stock32, Kind::Stock32)
        },
    ),
    scenario(
        "stock-late-writes",
        "a stock P writes late what D has given up, and D uses those blocks again",
        &["G03", "P09", "Z02"],
        fleets::stock_late_writes,
    ),
    scenario(
        "duplicate-ids",
        "ids used twice, at once and one after the other",
        &["P11", "G01", "F07", "F20", "F28"],
        requests::duplicates,
    ),
    scenario("samples", "several samples of one prompt", &["P11", "F23"], requests::samples),
    scenario(
        "early-release",
        "P's engine or D releases before P holds, or at once",
        &["P01", "P05", "P13", "F17"],
        requests::early_release,
    ),
    scenario(
        "one-token",
        "P's only token ends the text; prompts of one token",
        &["P05", "P10", "F19"],
        requests::one_token,
    ),
    scenario(
        "prefix-hits",
        "D has some of the prompt, or all of it",
        &["A06", "P10", "F10", "F53"],
        requests::prefix_hits,
    ),
    scenario(
        "hybrid-prefix-hits",
        "the same with full attention, a window and recurrent state",
        &["A05", "A06", "P10", "F48", "F53"],
        requests::hybrid_hits,
    ),
    scenario(
        "disconnects",
        "clients leave at every moment",
        &["P09", "P10", "P13", "F01", "F10", "F16", "F17"],
        requests::disconnects,
    ),
    scenario(
        "batches",
        "requests share pulls; some are late, some dropped, some come again",
        &["P02", "P09", "P11", "F07"],
        requests::batches,
    ),
    scenario(
        "late-halves",
        "one half of a request comes too late, or never",
        &["P04", "P05", "P06", "F24", "F26", "F27"],
        requests::late_halves,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_plans_carry_them() {
        let names: BTreeSet<_> = ALL.iter().map(|it| it.name).collect();
        assert_eq!(names.len(), ALL.len());
        for it in ALL {
            let plan = (it.make)(7);
            assert_eq!((plan.scenario.as_str(), plan.seed), (it.name, 7));
            assert_eq!(plan, (it.make)(7), "{} is not a function of its seed", it.name);
        }
    }

    #[test]
    fn plans_name_engines_of_the_right_side_and_come_in_order() {
        for (it, seed) in ALL.iter().flat_map(|it| (0..50).map(move |seed| (it, seed))) {
            let plan = (it.make)(seed);
            let side = |engine: u16| plan.fleet.engines[usize::from(engine)].side;
            let ids: BTreeSet<_> = plan.requests.iter().map(|request| request.id).collect();
            assert_eq!(ids.len(), plan.requests.len(), "{} {seed}: ids repeat", it.name);
            for request in &plan.requests {
                let fits = side(request.prefill).sends() && side(request.decode).loads();
                assert!(fits && request.prefill != request.decode, "{} {seed}", it.name);
                assert!(request.prompt_len > 0 && request.shared_len <= request.prompt_len);
            }
            assert!(plan.requests.is_sorted_by_key(|request| request.at_ms), "{} {seed}", it.name);
            assert!(plan.happenings.is_sorted_by_key(|it| it.at_ms), "{} {seed}", it.name);
        }
    }
}
