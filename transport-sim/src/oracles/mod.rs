//! What must hold in every run. One small file each; none knows the code it judges, only
//! the history.
//!
//! Only nodes of ours are judged ([`What::Started`] with `stock: false`), and only while
//! they live: [`What::Killed`] voids what a life owed. Oracles rely on this of a history:
//!
//! - [`What::Started`] is a life's first event and [`What::Killed`] its last; a restart is
//!   another life. `Started` names the control address that pulls go to. While a node is
//!   stopped, time does not count for it, and nothing is handed to it.
//! - `Held`, `LoadAsked`, `ReleaseAsked` and `LoadDropped` come *before* the call into the
//!   node, since the node may act before the call returns. `HoldRefused` or `LoadRefused`
//!   follows when it said no. `SendEnded` and `LoadEnded` come when the engine learns of it,
//!   before it uses the blocks for anything else.
//! - `PullSent` comes when the message is handed to the control plane, `ReplySent` when P
//!   gives an answer, also to a connection that is gone; `PullReceived` and `ReplyReceived`
//!   just before the node reads the message. A connection's first message tells what it is:
//!   answers to drops and to unreadable messages are not judged. `ConnectionBroken` is told
//!   only of connections that did not end as they should.
//! - `GrantOpened` comes only for a grant that the data plane took, `Revoked` and
//!   `Unregistered` when their calls return; `Landed` when bytes are copied, one for each
//!   piece, seen or not. `WriteStarted` comes in the call that starts the write, its `reads`
//!   lie inside the rows of one `Held`; `WriteEnded` before the node learns of it.
//! - `Registered` comes in the call that registers. `Unmapped` comes once the engine has
//!   heard all that its node had to say and no call into it is open. `SleepFailed` comes once
//!   the ranks that had unregistered are registered again.
//! - `OperationAsked` comes before an engine's lifecycle is asked, `OperationEnded` when whoever
//!   asked has the answer; `EngineTold` and `RankTold` when the order is given, before it is
//!   begun, `OrderDone` when its end is known and was not forgotten before. `WeightsSet` comes
//!   once the node has taken the version.
//! - `rows` of `LoadAsked` are the bytes that P must write, all of them and no others.
//! - Reasons are core's enum in its `Debug` form: `TimedOut`, `Expired`, `Released`.
//! - After `Healed`: each living engine of ours reports `Leftovers`, each node `Tables`, then
//!   `Ended`. An engine that restarts runs the weights that the others run.
//! - Fleets' sizes fit each other, and requests come only once every engine has been
//!   announced. A calm plan has enough blocks and bandwidth that nothing waits `load_ms`.

mod all_ends;
mod answers;
mod answers_come_soon;
mod answers_of_its_pull;
mod calm_worlds;
mod cleared;
mod compared;
mod current_generation;
mod cut_short;
mod drain_budget;
mod drained_before_unmap;
mod dropped_blocks_back;
mod drops_hit_their_load;
mod due;
mod early_release;
mod echo_only_when_held;
mod explained_failures;
mod few_pulls;
mod fresh_grants;
mod fresh_keys;
mod fresh_layout_ids;
mod granted_rows;
mod judge;
mod layout_less_after_echo;
mod layout_once;
mod lives;
mod loaded_means_written;
mod loads_end_once;
#[cfg(test)]
mod made_up;
mod no_early_timeouts;
mod no_late_start;
mod no_miss_to_old_d;
mod no_panic;
mod nothing_after_settled;
mod ok_means_written;
mod old_weights;
mod one_terminal_answer;
mod open;
mod operations_end;
mod own_incarnation;
mod own_load_only;
mod own_weights;
mod prepared_first;
mod ranges;
mod ranks_alike;
mod reads_while_held;
mod registered_takes_holds;
mod released_soon;
mod resumed_at_once;
mod sends_end_once;
mod sleep_all_or_nothing;
mod slots_per_peer;
mod stock_sees_stock;
mod tables_bounded;
mod unprotected;
mod used_once;
mod writes_as_pulled;
mod writes_end_once;

pub use all_ends::AllEnds;
pub use answers::Answers;
pub use answers_come_soon::AnswersComeSoon;
pub use answers_of_its_pull::AnswersOfItsPull;
pub use calm_worlds::CalmWorlds;
pub use cleared::Cleared;
pub use compared::Compared;
pub use current_generation::CurrentGeneration;
pub use cut_short::CutShort;
pub use drain_budget::DrainBudget;
pub use drained_before_unmap::DrainedBeforeUnmap;
pub use dropped_blocks_back::DroppedBlocksBack;
pub use drops_hit_their_load::DropsHitTheirLoad;
pub use early_release::EarlyRelease;
pub use echo_only_when_held::EchoOnlyWhenHeld;
pub use explained_failures::ExplainedFailures;
pub use few_pulls::FewPulls;
pub use fresh_grants::FreshGrants;
pub use fresh_keys::FreshKeys;
pub use fresh_layout_ids::FreshLayoutIds;
pub use granted_rows::GrantedRows;
pub use judge::Judge;
pub use layout_less_after_echo::LayoutLessAfterEcho;
pub use layout_once::LayoutOnce;
pub use loaded_means_written::LoadedMeansWritten;
pub use loads_end_once::LoadsEndOnce;
pub use no_early_timeouts::NoEarlyTimeouts;
pub use no_late_start::NoLateStart;
pub use no_miss_to_old_d::NoMissToOldD;
pub use no_panic::NoPanic;
pub use nothing_after_settled::NothingAfterSettled;
pub use ok_means_written::OkMeansWritten;
pub use old_weights::OldWeights;
pub use one_terminal_answer::OneTerminalAnswer;
pub use operations_end::OperationsEnd;
pub use own_incarnation::OwnIncarnation;
pub use own_load_only::OwnLoadOnly;
pub use own_weights::OwnWeights;
pub use prepared_first::PreparedFirst;
pub use ranks_alike::RanksAlike;
pub use reads_while_held::ReadsWhileHeld;
pub use registered_takes_holds::RegisteredTakesHolds;
pub use released_soon::ReleasedSoon;
pub use resumed_at_once::ResumedAtOnce;
pub use sends_end_once::SendsEndOnce;
pub use sleep_all_or_nothing::SleepAllOrNothing;
pub use slots_per_peer::SlotsPerPeer;
pub use stock_sees_stock::StockSeesStock;
pub use tables_bounded::TablesBounded;
pub use used_once::UsedOnce;
pub use writes_as_pulled::WritesAsPulled;
pub use writes_end_once::WritesEndOnce;

use crate::history::Event;
#[cfg(doc)]
use crate::history::What;
use crate::plan::Plan;

/// Watches a run. Stateful; sees each event once, in order.
pub trait Oracle {
    /// Its name, kebab-case.
    fn name(&self) -> &'static str;

    /// The rules it judges by, such as `L04`.
    fn rules(&self) -> &'static [&'static str];

    /// Takes the next event.
    ///
    /// # Errors
    /// What is wrong, in words that name who, what and when it should have been.
    fn observe(&mut self, event: &Event) -> Result<(), String>;

    /// The run is over.
    ///
    /// # Errors
    /// What is missing.
    fn end(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// What an oracle found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The oracle.
    pub oracle: &'static str,
    /// Its rules.
    pub rules: &'static [&'static str],
    /// Its words.
    pub text: String,
    /// Index of the event that it objected to; the number of events when it was the end.
    pub event: usize,
}

/// All oracles that judge runs of `plan`.
#[must_use]
pub fn all(plan: &Plan) -> Vec<Box<dyn Oracle + Send>> {
    vec![
        Box::new(AllEnds::default()),
        Box::new(AnswersComeSoon::default()),
        Box::new(AnswersOfItsPull::default()),
        Box::new(DropsHitTheirLoad::default()),
        Box::new(EarlyRelease::new(plan)),
        Box::new(FreshKeys::default()),
        Box::new(RegisteredTakesHolds::default()),
        Box::new(SlotsPerPeer::new(plan)),
        Box::new(UsedOnce::default()),
        Box::new(Answers::default()),
        Box::new(CalmWorlds::new(plan)),
        Box::new(Compared::default()),
        Box::new(CurrentGeneration::default()),
        Box::new(DrainedBeforeUnmap::default()),
        Box::new(DroppedBlocksBack::new(plan)),
        Box::new(EchoOnlyWhenHeld::default()),
        Box::new(ExplainedFailures::new(plan)),
        Box::new(FewPulls::default()),
        Box::new(FreshGrants::default()),
        Box::new(FreshLayoutIds::default()),
        Box::new(GrantedRows::default()),
        Box::new(LayoutLessAfterEcho::default()),
        Box::new(LayoutOnce::new(plan)),
        Box::new(LoadedMeansWritten::default()),
        Box::new(LoadsEndOnce::new(plan)),
        Box::new(NoEarlyTimeouts::new(plan)),
        Box::new(NoLateStart::new(plan)),
        Box::new(NoMissToOldD::default()),
        Box::new(NoPanic),
        Box::new(NothingAfterSettled::default()),
        Box::new(OkMeansWritten::default()),
        Box::new(OldWeights::default()),
        Box::new(OneTerminalAnswer::new(plan)),
        Box::new(OwnIncarnation::default()),
        Box::new(OwnLoadOnly::default()),
        Box::new(ReadsWhileHeld::default()),
        Box::new(ReleasedSoon::new(plan)),
        Box::new(SendsEndOnce::new(plan)),
        Box::new(SleepAllOrNothing::default()),
        Box::new(StockSeesStock::default()),
        Box::new(TablesBounded::new(plan)),
        Box::new(WritesAsPulled::default()),
        Box::new(WritesEndOnce::new(plan)),
        Box::new(ResumedAtOnce::default()),
        Box::new(RanksAlike::default()),
        Box::new(PreparedFirst::default()),
        Box::new(OwnWeights::default()),
        Box::new(OperationsEnd::new(plan)),
        Box::new(DrainBudget::new(plan)),
        Box::new(CutShort::default()),
        Box::new(Cleared::default()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Tables, What};
    use std::collections::BTreeSet;

    /// A transfer from its first message to its last, the second one without its layout.
    fn transfers(count: u64) -> made_up::Story {
        use crate::history::{Answer, WriteEnd};
        use kvbaton_core::wire::Status;
        use made_up::*;

        let mut story = Story::new();
        let layout = 0x1234_5678_9abc_def1;
        for number in 0..count {
            let name = format!("r{number}");
            // Scattered over all numbers, as random ones are.
            let random = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let at = &[(number % 8 * 4096, 4096)];
            let request = u32::try_from(number).unwrap();
            let mut answered = reply(Status::Finish, &[&name], &[], layout);
            answered.incarnation = Some(kvbaton_core::ids::Incarnation(99));
            let pulled = || pull(layout, number == 0, &[(&name, random)]);
            let submitted = What::Submitted { request, attempt: 0, prefill: 0, decode: 1 };
            let answer = Answer::Tokens { tokens: vec![1], expected: vec![vec![1]] };
            story = story
                .at(number * 10)
                .clients(submitted)
                .p(held(&name, at))
                .d(load(&name, at))
                .d(grant(random, at, false))
                .d(pull_sent(number, pulled()))
                .p(pull_received(number, pulled()))
                .p(write(number, random, at))
                .d(landed(number, Some(random), at))
                .p(write_ended(number, WriteEnd::Written))
                .p(send_ended(&name, Ok(())))
                .p(reply_sent(number, answered.clone()))
                .d(reply_received(number, answered))
                .d(What::RevokeAsked { grant: kvbaton_core::ids::Grant(random) })
                .d(What::Revoked { grant: kvbaton_core::ids::Grant(random) })
                .d(loaded(&name))
                .clients(What::Answered { request, attempt: 0, answer });
        }
        story
    }

    #[test]
    fn a_legal_run_passes_every_oracle() {
        let plan = made_up::plan();
        let mut judge = Judge::new(all(&plan));
        let story = transfers(50).world(What::Healed).p(What::Tables(Tables::default()));
        let story = story.d(What::Tables(Tables::default()));
        let story = story.engine(0, What::Leftovers(Vec::new()));
        let story = story.engine(1, What::Leftovers(Vec::new())).world(What::Ended);
        for event in story.events() {
            assert_eq!(judge.observe(&event), None, "{event}");
        }
        assert_eq!(judge.end(), None);
    }

    #[test]
    fn each_oracle_has_a_name_of_its_own_and_rules() {
        let oracles = all(&made_up::plan());
        let names: BTreeSet<&str> = oracles.iter().map(|it| it.name()).collect();
        assert_eq!(names.len(), oracles.len());
        for oracle in &oracles {
            assert!(oracle.name().chars().all(|it| it.is_ascii_lowercase() || it == '-'));
            for rule in oracle.rules() {
                let (letter, number) = rule.split_at(1);
                assert!("LAPGSRXZ".contains(letter) && number.parse::<u8>().is_ok(), "{rule}");
            }
        }
    }
}
