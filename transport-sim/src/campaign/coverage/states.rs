//! The states in which a fault can find an engine: the columns of the table.

/// What some rank of an engine is at when a fault begins. One engine can be in several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Nothing of what follows.
    Idle,
    /// P: a pull is there, its blocks are not.
    Waiting,
    /// P: blocks are held for D.
    Held,
    /// P: a write is in flight.
    Writing,
    /// P: an answer is under way.
    Answering,
    /// D: a load has sent no pull yet.
    Finding,
    /// D: a load's last pull carried the layout.
    LoadingWithLayout,
    /// D: a load's last pull carried none.
    LoadingWithout,
    /// D: a write towards it is in flight.
    Written,
    /// D: a load is dropped, or its grant is being revoked.
    Revoking,
    /// It gives everything back before it sleeps.
    Draining,
    /// Its memory is unregistered.
    Asleep,
    /// It does not compute.
    Paused,
    /// It came back from a restart and has neither answered a pull nor ended a load.
    Restarted,
    /// Its process is stopped.
    Stopped,
    /// Its process is dead.
    Down,
    /// It, or an engine of the other side, is a stock peer.
    Stock,
}

impl State {
    /// All, in the order of the table.
    pub const ALL: [Self; 17] = [
        Self::Idle,
        Self::Waiting,
        Self::Held,
        Self::Writing,
        Self::Answering,
        Self::Finding,
        Self::LoadingWithLayout,
        Self::LoadingWithout,
        Self::Written,
        Self::Revoking,
        Self::Draining,
        Self::Asleep,
        Self::Paused,
        Self::Restarted,
        Self::Stopped,
        Self::Down,
        Self::Stock,
    ];

    /// States that only a P engine can be in.
    pub const PREFILL: [Self; 4] = [Self::Waiting, Self::Held, Self::Writing, Self::Answering];

    /// States that only a D engine can be in.
    pub const DECODE: [Self; 5] = [
        Self::Finding,
        Self::LoadingWithLayout,
        Self::LoadingWithout,
        Self::Written,
        Self::Revoking,
    ];

    /// At most seven letters, for the table's head.
    #[must_use]
    pub const fn short(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Waiting => "P wait",
            Self::Held => "P held",
            Self::Writing => "P write",
            Self::Answering => "P answ",
            Self::Finding => "D find",
            Self::LoadingWithLayout => "D lay",
            Self::LoadingWithout => "D bare",
            Self::Written => "D land",
            Self::Revoking => "D revo",
            Self::Draining => "drain",
            Self::Asleep => "asleep",
            Self::Paused => "paused",
            Self::Restarted => "fresh",
            Self::Stopped => "stopped",
            Self::Down => "down",
            Self::Stock => "stock",
        }
    }

    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Waiting => "P waits for its prefill",
            Self::Held => "P holds blocks",
            Self::Writing => "P writes",
            Self::Answering => "P's answer is under way",
            Self::Finding => "D has sent no pull yet",
            Self::LoadingWithLayout => "D loads, the layout was sent",
            Self::LoadingWithout => "D loads, without the layout",
            Self::Written => "D is written to",
            Self::Revoking => "D drops or revokes",
            Self::Draining => "draining",
            Self::Asleep => "asleep",
            Self::Paused => "paused",
            Self::Restarted => "just restarted",
            Self::Stopped => "stopped",
            Self::Down => "down",
            Self::Stock => "a stock peer takes part",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_every_state_in_order_and_heads_are_short() {
        assert!(State::ALL.is_sorted());
        assert!(State::ALL.iter().all(|it| it.short().len() <= 7));
        assert_eq!(State::ALL.len(), State::Stock as usize + 1);
    }
}
