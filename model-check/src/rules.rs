//! What must hold in every state.

/// A rule of the contract that the model checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A byte lands only in the rows that its live grant names.
    G01,
    /// No byte lands after its load's end.
    G02,
    /// An echo names the layout id of the pull that it answers.
    L03,
    /// D leaves its layout out only after an echo of its current id from that rank; so a
    /// late echo of an older id proves nothing (L10).
    L04,
    /// LAYOUT_MISS answers only a pull with an id and no layout.
    L06,
    /// P plans only with its own and D's registration that the pull is about (L11).
    L09,
    /// P's blocks go back once, and while no write reads them.
    P01,
    /// Each request of a pull gets one terminal answer.
    P02,
    /// No more writes run than there are slots.
    P03,
    /// A load is reported once, after its grant is gone, and as loaded only when every
    /// byte is there.
    P08,
    /// A P that restarted serves no pull meant for the process before.
    P12,
    /// Memory is unregistered only when nothing uses it.
    S01,
    /// An answer to a pull that is over, or a message for a process that is gone, changes
    /// nothing (L10, P12, P13).
    Late,
    /// Every pull is answered and every load reported, without waiting for a deadline, if
    /// no message was lost.
    Progress,
    /// When nothing can happen any more, nothing is left: no load, pull, grant or block.
    Rest,
    /// Core's own assertions hold.
    Assertion,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 16] = [
        Self::G01,
        Self::G02,
        Self::L03,
        Self::L04,
        Self::L06,
        Self::L09,
        Self::P01,
        Self::P02,
        Self::P03,
        Self::P08,
        Self::P12,
        Self::S01,
        Self::Late,
        Self::Progress,
        Self::Rest,
        Self::Assertion,
    ];

    /// Its number and what it says.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::G01 => "G01: a byte lands only in the rows of its live grant",
            Self::G02 => "G02: no byte lands after its load's end",
            Self::L03 => "L03: an echo names the pull's layout id",
            Self::L04 => "L04, L10: layout-less only after an echo of the current id",
            Self::L06 => "L06: LAYOUT_MISS only to an id without a layout",
            Self::L09 => "L09, L11: P plans only with the registrations that are meant",
            Self::P01 => "P01: P's blocks go back once, and while no write reads them",
            Self::P02 => "P02: one terminal answer per request of a pull",
            Self::P03 => "P03: no more writes than slots",
            Self::P08 => "P08: a load is reported once, settled, and truly loaded",
            Self::P12 => "P12: a P that restarted serves no old pull",
            Self::S01 => "S01: memory is unregistered only when drained",
            Self::Late => "L10, P12, P13: what comes too late changes nothing",
            Self::Progress => "P02, P08: without a loss, everything ends without a deadline",
            Self::Rest => "P06, P09, P12: at rest nothing is left",
            Self::Assertion => "core's own assertions hold",
        }
    }
}
