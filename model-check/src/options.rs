//! How large a world is, and what may go wrong in it.

/// A world to explore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Ranks of the one P engine, 1 or 2; D has one rank.
    pub ranks: u8,
    /// Requests that D loads, 1 to 3, each from every P rank.
    pub loads: u8,
    /// Blocks of each request.
    pub blocks: u8,
    /// Writes that one P rank runs at once `[P03]`.
    pub slots: u8,
    /// What may go wrong, and how often.
    pub faults: Faults,
    /// What comes too late arrives at once, which must make no difference.
    pub late_at_once: bool,
    /// States and steps are left out for which others stand ([`crate::explorer`]).
    pub reduced: bool,
    /// A part of the world around core that is broken on purpose.
    pub broken: Option<Broken>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ranks: 2,
            loads: 2,
            blocks: 1,
            slots: 1,
            faults: Faults::default(),
            late_at_once: true,
            reduced: true,
            broken: None,
        }
    }
}

/// Budgets: how often each thing may happen on one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Faults {
    /// P's engine restarts, all its ranks at once.
    pub restarts: u8,
    /// P's first rank forgets D's layout, since another D's took its place `[L08]`.
    pub evictions: u8,
    /// D unregisters its memory and registers it again.
    pub decode_sleeps: u8,
    /// P's first rank unregisters its memory and registers it again.
    pub prefill_sleeps: u8,
    /// D's engine drops a load.
    pub drops: u8,
    /// P's engine gives a request up, at all its ranks at once.
    pub releases: u8,
    /// A message is lost; D is told of it, or is not.
    pub losses: u8,
    /// A message arrives twice.
    pub duplicates: u8,
    /// A deadline comes although other things could still happen.
    pub deadlines: u8,
    /// P's data plane gives a write up without knowing whether it lands.
    pub write_failures: u8,
}

/// One kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// See [`Faults::restarts`].
    Restart,
    /// See [`Faults::evictions`].
    Evict,
    /// See [`Faults::decode_sleeps`].
    DecodeSleep,
    /// See [`Faults::prefill_sleeps`].
    PrefillSleep,
    /// See [`Faults::drops`].
    Drop,
    /// See [`Faults::releases`].
    Release,
    /// See [`Faults::losses`].
    Lose,
    /// See [`Faults::duplicates`].
    Duplicate,
    /// See [`Faults::deadlines`].
    Deadline,
    /// See [`Faults::write_failures`].
    FailWrite,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Restart,
        Self::Evict,
        Self::DecodeSleep,
        Self::PrefillSleep,
        Self::Drop,
        Self::Release,
        Self::Lose,
        Self::Duplicate,
        Self::Deadline,
        Self::FailWrite,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Evict => "evict",
            Self::DecodeSleep => "decode-sleep",
            Self::PrefillSleep => "prefill-sleep",
            Self::Drop => "drop",
            Self::Release => "release",
            Self::Lose => "lose",
            Self::Duplicate => "duplicate",
            Self::Deadline => "deadline",
            Self::FailWrite => "fail-write",
        }
    }
}

impl Faults {
    /// One of each of `kinds`; a kind that is named twice may happen twice.
    #[must_use]
    pub fn of(kinds: &[Fault]) -> Self {
        let mut faults = Self::default();
        for kind in kinds {
            *faults.budget(*kind) += 1;
        }
        faults
    }

    /// Takes one of a kind; false when none is left.
    pub(crate) fn take(&mut self, kind: Fault) -> bool {
        let budget = self.budget(kind);
        let any = *budget > 0;
        *budget -= u8::from(any);
        any
    }

    /// One bit for each fault of `all` that is left: who has more bits may do more.
    pub(crate) fn bits(mut self, mut all: Self) -> u32 {
        Fault::ALL.into_iter().fold(0, |bits, kind| {
            let (left, of) = (*self.budget(kind), *all.budget(kind));
            (0..of).fold(bits, |bits, at| bits << 1 | u32::from(at < left))
        })
    }

    /// How many faults there are.
    pub(crate) fn total(mut self) -> u32 {
        Fault::ALL.into_iter().map(|kind| u32::from(*self.budget(kind))).sum()
    }

    fn budget(&mut self, kind: Fault) -> &mut u8 {
        match kind {
            Fault::Restart => &mut self.restarts,
            Fault::Evict => &mut self.evictions,
            Fault::DecodeSleep => &mut self.decode_sleeps,
            Fault::PrefillSleep => &mut self.prefill_sleeps,
            Fault::Drop => &mut self.drops,
            Fault::Release => &mut self.releases,
            Fault::Lose => &mut self.losses,
            Fault::Duplicate => &mut self.duplicates,
            Fault::Deadline => &mut self.deadlines,
            Fault::FailWrite => &mut self.write_failures,
        }
    }
}

/// A bug planted around core, so that the checker itself is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// D's data plane takes every write into registered memory.
    UncheckedGrants,
    /// D's data plane says that a grant is revoked while it is still open.
    EarlyRevocation,
    /// A node unregisters without waiting for its drain.
    ImpatientDrain,
    /// D gives its next registration the same layout id.
    SameLayoutId,
    /// P's next process takes the same incarnation.
    SameIncarnation,
    /// P's next registration keeps the layouts of the one before.
    StalePlans,
    /// P answers LAYOUT_MISS to a pull that has its layout.
    MissWithLayout,
    /// Replies of P's first rank never arrive.
    DeafNetwork,
    /// States that differ in what D knows of P stand for one another.
    BlindPrint,
}
