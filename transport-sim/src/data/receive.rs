//! What a data plane does with a piece of a write that comes in.

use super::flight::{Flight, Piece};
use super::ranges::merged;
use super::state::{Checks, Pinned, SimData, State};
use crate::history::What;
use kvbaton_actors::transport::Rejection;
use kvbaton_core::planted::{self, Bug};
use kvbaton_core::region::MemoryRange;

impl SimData {
    /// Takes or refuses pieces, all or none.
    pub(super) fn land(&self, flight: &Flight, pieces: &[Piece]) -> Result<(), Rejection> {
        let mut state = self.state();
        let found = match self.checks {
            Checks::Grants => granted(&state, flight, pieces),
            Checks::Keys => self.keyed(&state, flight, pieces),
            Checks::Memory => registered(&state, pieces),
        };
        let pinned = match found {
            Ok(pinned) => pinned,
            Err(why) => {
                match why {
                    Rejection::UnknownGrant | Rejection::GrantRequired => {
                        state.counters.refused_grant += 1;
                    }
                    Rejection::StaleGeneration => state.counters.refused_generation += 1,
                    Rejection::OutsideGrant | Rejection::OutsideMemory => {
                        state.counters.refused_range += 1;
                    }
                }
                drop(state);
                let why: std::sync::Arc<str> = why.to_string().into();
                self.sim.note_at(self.node, What::Refused { write: flight.name(), why });
                return Err(found_error(found));
            }
        };
        let total = pieces.iter().map(|piece| piece.bytes.len() as u64).sum();
        state.landed(flight.grant(), total);
        drop(state);
        for piece in pieces {
            pinned.pages.write(piece.to, &piece.bytes);
        }
        self.sim.note_at(
            self.node,
            What::Landed {
                write: flight.name(),
                grant: flight.grant(),
                generation: flight.generation(),
                ranges: merged(pieces.iter().map(Piece::range).collect()),
                seen: self.memory.shows(&pinned.pages),
            },
        );
        Ok(())
    }

    /// An adapter's check: keys of a registration, and that nothing has fenced the write.
    fn keyed(&self, state: &State, flight: &Flight, pieces: &[Piece]) -> Result<Pinned, Rejection> {
        if flight.grant().is_some_and(|grant| state.fenced.contains(&grant)) {
            return Err(Rejection::UnknownGrant);
        }
        if flight.grant().is_none() {
            return ungranted(state, pieces);
        }
        let current = state.current.iter().find(|it| it.keys == flight.keys());
        let old = state.old.iter().find(|it| it.keys == flight.keys());
        let lands = self.sim.links().odds().stale_lands;
        let pinned = current.or(old.filter(|_| lands)).ok_or(Rejection::StaleGeneration)?;
        inside(&pinned.ranges, pieces).then(|| pinned.clone()).ok_or(Rejection::OutsideMemory)
    }
}

fn found_error(found: Result<Pinned, Rejection>) -> Rejection {
    found.expect_err("called for errors only")
}

fn inside(rows: &[MemoryRange], pieces: &[Piece]) -> bool {
    pieces.iter().all(|piece| {
        let range = piece.range();
        rows.iter().any(|row| row.contains(range.start, range.len))
    })
}

/// Our own check, for each piece `[G01, Z02]`.
fn granted(state: &State, flight: &Flight, pieces: &[Piece]) -> Result<Pinned, Rejection> {
    let Some(grant) = flight.grant() else { return ungranted(state, pieces) };
    let current = state.current.as_ref().ok_or(Rejection::StaleGeneration)?;
    let named = Some(current.generation) == flight.generation() && current.keys == flight.keys();
    if !named && !planted::is(Bug::GenerationNotChecked) {
        return Err(Rejection::StaleGeneration);
    }
    let (rows, _) = state.grants.get(&grant).ok_or(Rejection::UnknownGrant)?;
    let rows = if planted::is(Bug::RowsNotChecked) { &current.ranges } else { &rows.rows };
    inside(rows, pieces).then(|| current.clone()).ok_or(Rejection::OutsideGrant)
}

/// A stock writer may write where a live load has opened its rows to such writers `[Z02]`.
fn ungranted(state: &State, pieces: &[Piece]) -> Result<Pinned, Rejection> {
    let current = state.current.as_ref().ok_or(Rejection::OutsideMemory)?;
    let open: Vec<MemoryRange> = state
        .grants
        .values()
        .filter(|(rows, _)| rows.allow_ungranted && rows.generation == current.generation)
        .flat_map(|(rows, _)| rows.rows.iter().copied())
        .collect();
    inside(&open, pieces).then(|| current.clone()).ok_or(Rejection::GrantRequired)
}

/// A stock engine takes what lies in registered memory.
fn registered(state: &State, pieces: &[Piece]) -> Result<Pinned, Rejection> {
    let current = state.current.as_ref().ok_or(Rejection::OutsideMemory)?;
    inside(&current.ranges, pieces).then(|| current.clone()).ok_or(Rejection::OutsideMemory)
}
