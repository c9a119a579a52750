//! The list of bugs: what each breaks, and how it shows from outside.

use std::fmt;
use std::str::FromStr;

macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident = $name:literal, $rule:literal;)*) => {
        /// A planted bug. Each says what is broken, then after "Shows" the fault or
        /// configuration that it needs and what can be seen from outside.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Bug {
            $($(#[$doc])* $bug,)*
        }

        impl Bug {
            /// Every bug.
            pub const ALL: &'static [Self] = &[$(Self::$bug,)*];

            /// Its name in lower case, words joined by hyphens.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$bug => $name,)*
                }
            }

            /// The rule that it breaks, such as `L04`.
            #[must_use]
            pub const fn rule(self) -> &'static str {
                match self {
                    $(Self::$bug => $rule,)*
                }
            }
        }
    };
}

bugs! {
    // Layout once per peer.

    /// D takes any FINISH for an echo `[L04]`. Shows with a P that never echoes, or that
    /// fails a pull before it holds the layout: D's next pull to it has no layout.
    FinishTakenAsEcho = "finish-taken-as-echo", "L04";
    /// D's layout id counts its loads instead of being random `[L01, L11]`. Shows in pulls
    /// without any fault: the first registrations of two processes share an id.
    CounterLayoutId = "counter-layout-id", "L01";
    /// D takes an echo of any id for the current one `[L10]`. Shows with a P whose answer
    /// outlives D's registration (a stock P, a load cut short, D asleep and awake again):
    /// D's next pull to it has no layout.
    StaleEchoAccepted = "stale-echo-accepted", "L10";
    /// P answers LAYOUT_MISS to a pull without a layout id `[L06]`. Shows with an old stock
    /// D at its first pull: a status that it does not know.
    MissToOldPeer = "miss-to-old-peer", "L06";
    /// P keeps stored and prepared layouts over its own registration `[L09]`. Shows when P
    /// registers other memory: wrong bytes, or a pull without a layout that is not missed.
    LayoutsOutliveRegistration = "layouts-outlive-registration", "L09";
    /// D keeps its echoes over its own registration `[L09]`. Shows when D wakes: its first
    /// pull has no layout, and P misses it.
    EchoesOutliveRegistration = "echoes-outlive-registration", "L09";
    /// D's layout id is made of its addresses, so that a wake mints none `[S02]`. Shows when
    /// D wakes or restarts: its pulls have the old id.
    WakeKeepsLayoutId = "wake-keeps-layout-id", "S02";
    /// P's stored layouts have no bound `[L08]`. Shows with more Ds than `peer_layouts`: a
    /// pull without a layout is never missed, however many others came since.
    LayoutsUnbounded = "layouts-unbounded", "L08";
    /// D answers each LAYOUT_MISS by the same pull again, without its layout `[L05]`. Shows
    /// when P evicts a layout or registers again: pulls without end, and the load times out.
    MissRepeatsForEver = "miss-repeats-for-ever", "L05";

    // Planning.

    /// P counts one reader where D's stages differ from its own `[A02]`. Shows with unequal
    /// pipelines: the second stage's load fails, its transfer was used already.
    StagesMiscounted = "stages-miscounted", "A02";
    /// D takes a directory from which ranks are missing for a smaller engine `[A02]`. Shows
    /// when a load comes while P's ranks register one by one: blocks that were not written.
    PartialDirectoryTaken = "partial-directory-taken", "A02";
    /// A partial prefix hit takes the head of P's blocks `[A06]`. Shows when D asks for fewer
    /// blocks than P holds: wrong bytes.
    HeadTakenForTail = "head-taken-for-tail", "A06";

    // P's side.

    /// P gives blocks back when its engine aborts or releases them, although a write reads
    /// them `[P01]`. Shows with a release or abort during a slow write.
    AbortAckedBeforeDrained = "abort-acked-before-drained", "P01";
    /// P lets a transfer expire while a write reads it, and gives its blocks back `[P06]`.
    /// Shows with a write that is slower than what is left of the hold timeout.
    ExpiryDuringWrite = "expiry-during-write", "P06";
    /// P looks at no pull's deadline `[P04]`. Shows when P's engine or a slot comes later
    /// than D's timeout: no answer in time, and a write that starts too late.
    WriteAfterDeadline = "write-after-deadline", "P04";
    /// P forgets a release that comes before the hold `[P05]`. Shows when D or P's engine
    /// releases first: the blocks stay held until they expire.
    EarlyReleaseForgotten = "early-release-forgotten", "P05";
    /// P serves a request that was started before its weights were updated and held after
    /// it `[R07]`. Shows when P's weights are updated between a start and its hold: D gets KV
    /// of the old weights.
    WeightsNotStamped = "weights-not-stamped", "R07";
    /// P loses its answer to a request without blocks `[P02]`. Shows when D releases what it
    /// never loaded: no answer, and an open pull that never goes away.
    EmptyPullUnanswered = "empty-pull-unanswered", "P02";
    /// P answers a pull of several requests only once all are done `[P02]`. Shows with
    /// requests that share a pull and are ready at different times: the first waits.
    AnswersHeldBack = "answers-held-back", "P02";
    /// A write that failed keeps its slot `[P03]`. Shows after failed writes: P counts writes
    /// that are over, and with `senders` of them it starts no more.
    SlotLostOnFailure = "slot-lost-on-failure", "P03";
    /// One D may take every slot `[Z03]`. Shows with more pulls than `senders` towards a D
    /// that stopped reading: the loads of the others wait for it.
    OnePeerTakesAllSlots = "one-peer-takes-all-slots", "Z03";
    /// A drop ends whoever waits for the transfer, whatever its grant `[P09]`. Shows with two
    /// D ranks of which one drops, or a drop that comes after the request was loaded anew:
    /// a load that nobody dropped fails as dropped.
    DropHitsAnyGrant = "drop-hits-any-grant", "P09";
    /// P serves pulls that are meant for the process before it `[P12]`. Shows when P restarts
    /// at its address while D is idle: the load waits for its deadline.
    OldRunServed = "old-run-served", "P12";
    /// P announces itself once `[P12]`. Shows when the bootstrap server restarts: P's engine
    /// stays unknown.
    AnnouncedOnce = "announced-once", "P12";

    // D's side.

    /// D gives blocks back at the first P rank's failure, although the others write under a
    /// live grant `[P08]`. Shows with two P ranks of which one fails while the other writes.
    FreedAtFirstFailure = "freed-at-first-failure", "P08";
    /// D takes the first P rank's success for all `[P08]`. Shows with two P ranks per load:
    /// blocks that were not written.
    FirstAnswerEndsLoad = "first-answer-ends-load", "P08";
    /// D reports a load when it is dropped while its grant is revoked, and again afterwards
    /// `[P08]`. Shows with a drop right after P's last answer: two ends of one load.
    ReportedTwice = "reported-twice", "P08";
    /// An answer counts for the request's load of now, not for the one that was pulled
    /// `[P11]`. Shows when one of several requests of a pull is dropped and loads again: P's
    /// answer to the first load ends the second.
    RequestIdAba = "request-id-aba", "P11";
    /// D's loads in flight go on over an update of its weights `[R07]`. Shows when D's weights
    /// are updated during a load: it ends as loaded, with KV of the old weights.
    LoadOutlivesWeights = "load-outlives-weights", "R07";
    /// D's next load goes to the old addresses after a connection broke `[P12]`. Shows when P
    /// restarts elsewhere under its engine id: every load fails.
    EngineKeptWhenUnreachable = "engine-kept-when-unreachable", "P12";
    /// D opens blocks to stock loads although an earlier stock writer may still write them
    /// `[G03]`. Shows with a stock P, a load cut short, and its blocks used again: wrong bytes.
    QuarantineSkipped = "quarantine-skipped", "G03";

    // Grants and registrations.

    /// D ends loads without revoking their grants `[G02]`. Shows without any fault: grants
    /// stay live; late writes land.
    GrantNotRevoked = "grant-not-revoked", "G02";
    /// A grant is a hash of its request's name `[G01]`. Shows when a request loads twice: two
    /// loads with one grant; a late write of the first lands in the second.
    GrantFromRequest = "grant-from-request", "G01";
    /// Unregistering does not wait for what uses memory `[S01]`. Shows when a node sleeps with
    /// requests held or loads running: it returns, and they are still there.
    UnregisterWithoutDrain = "unregister-without-drain", "S01";
    /// P stays frozen when D's side of the node did not drain in time `[S01]`. Shows on a node
    /// of both roles whose sleep fails for a load: it stays registered but refuses holds.
    FreezeNotThawed = "freeze-not-thawed", "S01";
    /// P keeps the first remote keys of each D session `[S04]`. Shows when D wakes, on a data
    /// plane that has keys: P writes with the old ones.
    KeysNotRefreshed = "keys-not-refreshed", "S04";

    // The lifecycle of an engine.

    /// Ranks unregister once the first of them is prepared `[S06]`. Shows in a sleep over two
    /// ranks: the second is told to unregister before it has drained.
    CommitBeforePrepared = "commit-before-prepared", "S06";
    /// A resume that ends a sleep leaves prepared ranks as they are `[R05]`. Shows when it comes
    /// while ranks are being prepared: they refuse holds and loads until their lease ends.
    ResumeKeepsPrepared = "resume-keeps-prepared", "R05";
    /// Memory is unmapped before it is unregistered `[S05]`. Shows in every sleep.
    UnmapBeforeCommit = "unmap-before-commit", "S05";
    /// Memory is registered before it is mapped `[S05]`. Shows in every wake.
    RestoreBeforeMap = "restore-before-map", "S05";
    /// Clearing in mode `wait` gives D no time to pull `[R03]`. Shows with held requests: their
    /// loads are given up although D would have pulled in time.
    DrainBudgetSkipped = "drain-budget-skipped", "R03";
    /// A load that a reset cut short fails its request `[R04]`; the simulated engine plants it.
    /// Shows when P or D is reset under a load, where D does not recompute.
    ResetFailsLoads = "reset-fails-loads", "R04";

    // In data planes: a simulated transport asks for these.

    /// D's data plane takes writes of an older generation `[Z02]`. The simulated transport
    /// plants it. Shows with a P that names an older registration: its bytes land.
    GenerationNotChecked = "generation-not-checked", "Z02";
    /// A revoke returns, and the grant stays live `[G02]`. The simulated transport plants it.
    /// Shows with a late or duplicated write: bytes land in blocks that were given back.
    GrantOutlivesRevoke = "grant-outlives-revoke", "G02";
    /// A write under a live grant may land outside its rows `[G01]`. The simulated transport
    /// plants it. Shows with a P that writes elsewhere: bytes of other loads change.
    RowsNotChecked = "rows-not-checked", "G01";
    /// The data plane keeps the pages that were pinned first over an unregister and a new
    /// registration `[S04]`. The simulated transport plants it. Shows when D wakes: bytes land
    /// where nobody sees them, and count as written.
    PagesKeptOverWake = "pages-kept-over-wake", "S04";
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No bug has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no planted bug is called {0:?}; the names are: {names}", names = names())]
pub struct UnknownBug(
    /// What was asked for.
    pub String,
);

fn names() -> String {
    Bug::ALL.iter().map(|bug| bug.name()).collect::<Vec<_>>().join(", ")
}

impl FromStr for Bug {
    type Err = UnknownBug;

    fn from_str(name: &str) -> Result<Self, UnknownBug> {
        let mut all = Self::ALL.iter().copied();
        all.find(|bug| bug.name() == name).ok_or_else(|| UnknownBug(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_kebab_case_and_read_back() {
        let names: BTreeSet<&str> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        assert_eq!(names.len(), Bug::ALL.len());
        for bug in Bug::ALL {
            assert_eq!(bug.to_string().parse(), Ok(*bug));
            let variant = format!("{bug:?}");
            let mut kebab = String::new();
            for (at, letter) in variant.char_indices() {
                if letter.is_uppercase() && at > 0 {
                    kebab.push('-');
                }
                kebab.extend(letter.to_lowercase());
            }
            assert_eq!(kebab, bug.name());
        }
        let unknown = "no-such-bug".parse::<Bug>().unwrap_err().to_string();
        assert!(names.iter().all(|name| unknown.contains(name)), "{unknown}");
    }

    #[test]
    fn rules_are_rules_of_the_contract() {
        const LAST: [(char, u32); 8] =
            [('L', 11), ('A', 9), ('P', 13), ('G', 3), ('S', 6), ('R', 7), ('X', 3), ('Z', 5)];
        for bug in Bug::ALL {
            let (letter, number) = bug.rule().split_at(1);
            assert_eq!(number.len(), 2, "{bug}");
            let number: u32 = number.parse().unwrap();
            let last = LAST.iter().find(|(it, _)| letter.starts_with(*it));
            assert!(last.is_some_and(|(_, last)| (1..=*last).contains(&number)), "{bug}");
        }
    }
}
