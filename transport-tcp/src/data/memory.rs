//! Registered memory and grants, and the gates that every read and write passes.
//!
//! A registration and a grant each have a gate: a read-write lock around "still open".
//! Whoever touches memory holds the gates for reading, for one system call that cannot
//! block; ending a registration or grant takes the gate for writing. Once that returned,
//! nobody is inside and nobody gets in `[G02]`.

use kvbaton_actors::transport::{GrantedRows, Rejection, Revoked, TransportError};
use kvbaton_core::ids::{Address, Bytes, Generation, Grant};
use kvbaton_core::region::{Copy, MemoryRange};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// A lock around "still open"; once shut it stays shut.
struct Gate(RwLock<bool>);

impl Gate {
    fn open() -> Self {
        Self(RwLock::new(true))
    }

    /// Returns once nobody is inside. The first call that shuts it gets true.
    fn shut(&self) -> bool {
        std::mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), false)
    }

    fn enter(&self) -> Option<RwLockReadGuard<'_, bool>> {
        let guard = self.0.read().unwrap_or_else(PoisonError::into_inner);
        (*guard).then_some(guard)
    }
}

/// One registration.
pub struct Registered {
    /// Its name.
    pub generation: Generation,
    /// Sorted by start, never overlapping.
    ranges: Vec<MemoryRange>,
    gate: Gate,
}

/// Proof that a registration cannot end while it lives.
pub struct Inside<'a>(#[expect(dead_code, reason = "held")] RwLockReadGuard<'a, bool>);

impl Registered {
    /// Enters for one non-blocking call; `None` once the registration has ended.
    pub fn enter(&self) -> Option<Inside<'_>> {
        self.gate.enter().map(Inside)
    }

    fn contains(&self, start: Address, len: Bytes) -> bool {
        find(&self.ranges, start, len).is_some()
    }
}

/// One live grant.
pub struct OpenGrant {
    rows: Vec<MemoryRange>,
    registration: Arc<Registered>,
    gate: Gate,
    landed: AtomicU64,
}

/// Where the bytes of one checked frame may land, as long as [`Landing::enter`] lets in.
pub struct Landing(Arc<OpenGrant>);

/// Proof that neither the grant nor its registration can end while it lives.
pub struct Entered<'a> {
    grant: &'a OpenGrant,
    _registration: RwLockReadGuard<'a, bool>,
    _gate: RwLockReadGuard<'a, bool>,
}

impl Landing {
    /// Enters for one non-blocking read into memory.
    pub fn enter(&self) -> Result<Entered<'_>, Rejection> {
        let grant = &*self.0;
        let registration = grant.registration.gate.enter().ok_or(Rejection::StaleGeneration)?;
        let gate = grant.gate.enter().ok_or(Rejection::UnknownGrant)?;
        Ok(Entered { grant, _registration: registration, _gate: gate })
    }
}

impl Entered<'_> {
    /// Counts bytes that have just landed.
    pub fn landed(&self, bytes: u64) {
        self.grant.landed.fetch_add(bytes, Relaxed);
    }
}

#[derive(Default)]
struct Tables {
    registered: Vec<Arc<Registered>>,
    grants: BTreeMap<Grant, Arc<OpenGrant>>,
    /// Rows of grants that take writes without one, by start and grant.
    ungranted: BTreeMap<(Address, Grant), Bytes>,
}

/// All registrations and grants of one data plane.
#[derive(Default)]
pub struct Memory(RwLock<Tables>);

impl Memory {
    fn read(&self) -> RwLockReadGuard<'_, Tables> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn edit<R>(&self, edit: impl FnOnce(&mut Tables) -> R) -> R {
        edit(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Registers ranges under a new random generation.
    pub fn register(&self, ranges: &[MemoryRange]) -> Result<Generation, TransportError> {
        let ranges = checked_ranges(ranges)?;
        self.edit(|tables| {
            for range in &ranges {
                if tables.registered.iter().any(|other| overlaps(&other.ranges, *range)) {
                    let what = "overlaps memory that is registered; unregister that first";
                    return Err(TransportError::memory(range.start, range.len, what));
                }
            }
            let generation = Generation((rand::random::<u64>() >> 1) | 1);
            let gate = Gate::open();
            tables.registered.push(Arc::new(Registered { generation, ranges, gate }));
            Ok(generation)
        })
    }

    /// Ends a registration and its grants; returns once nobody touches its memory.
    pub fn unregister(&self, generation: Generation) {
        let found = self.read().registered.iter().find(|r| r.generation == generation).cloned();
        let Some(registration) = found else { return };
        registration.gate.shut();
        self.edit(|tables| {
            tables.registered.retain(|other| other.generation != generation);
            let ended = |grant: &OpenGrant| grant.registration.generation == generation;
            let grants: Vec<Grant> =
                tables.grants.iter().filter(|(_, g)| ended(g)).map(|(name, _)| *name).collect();
            for grant in grants {
                tables.remove(grant);
            }
        });
    }

    /// Ends all; for the end of the data plane.
    pub fn unregister_all(&self) {
        let all: Vec<_> = self.read().registered.iter().map(|r| r.generation).collect();
        all.into_iter().for_each(|generation| self.unregister(generation));
    }

    /// Opens a grant `[G01]`.
    pub fn open_grant(&self, granted: GrantedRows) -> Result<(), TransportError> {
        let GrantedRows { grant, generation, rows, allow_ungranted } = granted;
        // A load that touches no memory here (null blocks only) has a grant all the same.
        let rows = if rows.is_empty() { rows } else { checked_ranges(&rows)? };
        self.edit(|tables| {
            let registration = tables.registered.iter().find(|r| r.generation == generation);
            let Some(registration) = registration.cloned() else {
                let first = rows.first().copied().unwrap_or_default();
                let what = "the registration that the grant names has ended; use the current one";
                return Err(TransportError::memory(first.start, first.len, what));
            };
            if let Some(row) = rows.iter().find(|row| !registration.contains(row.start, row.len)) {
                let what = "a granted row lies outside the registration";
                return Err(TransportError::memory(row.start, row.len, what));
            }
            if let Some(open) = tables.grants.get(&grant)
                && (open.rows != rows || open.registration.generation != generation)
            {
                let first = rows.first().copied().unwrap_or_default();
                let what = "this grant is open for other rows; mint a new one per load";
                return Err(TransportError::memory(first.start, first.len, what));
            }
            if allow_ungranted {
                tables.ungranted.extend(rows.iter().map(|row| ((row.start, grant), row.len)));
            }
            if tables.grants.contains_key(&grant) {
                return Ok(());
            }
            let (gate, landed) = (Gate::open(), AtomicU64::new(0));
            let open = OpenGrant { rows, registration, gate, landed };
            tables.grants.insert(grant, Arc::new(open));
            Ok(())
        })
    }

    /// Ends a grant; returns once nothing under it can land `[G02]`.
    pub fn revoke(&self, grant: Grant) -> Revoked {
        let Some(open) = self.edit(|tables| tables.remove(grant)) else {
            return Revoked::default();
        };
        open.gate.shut();
        Revoked { was_live: true, bytes_landed: open.landed.load(Relaxed) }
    }

    /// Checks one frame of a peer of ours against its grant `[G01, Z02, F84]`.
    pub fn admit(
        &self,
        generation: Option<Generation>,
        grant: Option<Grant>,
        entries: &[MemoryRange],
    ) -> Result<Landing, Rejection> {
        let (Some(generation), Some(grant)) = (generation, grant) else {
            return Err(Rejection::GrantRequired);
        };
        let open = {
            let tables = self.read();
            if !tables.registered.iter().any(|r| r.generation == generation) {
                return Err(Rejection::StaleGeneration);
            }
            tables.grants.get(&grant).cloned().ok_or(Rejection::UnknownGrant)?
        };
        if open.registration.generation != generation {
            return Err(Rejection::StaleGeneration);
        }
        for entry in entries {
            if !open.registration.contains(entry.start, entry.len) {
                return Err(Rejection::OutsideMemory);
            }
            if find(&open.rows, entry.start, entry.len).is_none() {
                return Err(Rejection::OutsideGrant);
            }
        }
        Ok(Landing(open))
    }

    /// Checks a write of a stock peer, which has no grant, against those that allow it `[Z02]`.
    pub fn admit_ungranted(&self, entry: MemoryRange) -> Result<Landing, Rejection> {
        /// Rows of different loads never overlap, so the nearest one decides; a few more are
        /// tried in case an engine grants the same rows twice.
        const CANDIDATES: usize = 4;
        let MemoryRange { start, len } = entry;
        let tables = self.read();
        if !tables.registered.iter().any(|r| r.contains(start, len)) {
            return Err(Rejection::OutsideMemory);
        }
        tables
            .ungranted
            .range(..=(start, Grant(u64::MAX)))
            .rev()
            .take(CANDIDATES)
            .find(|((row, _), row_len)| {
                MemoryRange { start: *row, len: **row_len }.contains(start, len)
            })
            .and_then(|((_, grant), _)| tables.grants.get(grant))
            .map(|open| Landing(open.clone()))
            .ok_or(Rejection::OutsideGrant)
    }

    /// The registrations that the sources of a write lie in.
    pub fn sources(&self, copies: &[Copy]) -> Result<Vec<Arc<Registered>>, TransportError> {
        let tables = self.read();
        let mut found: Vec<Arc<Registered>> = Vec::new();
        for copy in copies {
            if found.iter().any(|r| r.contains(copy.source, copy.len)) {
                continue;
            }
            let holder = tables.registered.iter().find(|r| r.contains(copy.source, copy.len));
            let Some(holder) = holder else {
                let what = "the source of a write lies outside this node's registered memory";
                return Err(TransportError::memory(copy.source, copy.len, what));
            };
            found.push(holder.clone());
        }
        Ok(found)
    }

    /// Every registered range, for Mooncake's segment descriptor.
    pub fn ranges(&self) -> Vec<MemoryRange> {
        self.read().registered.iter().flat_map(|r| r.ranges.iter().copied()).collect()
    }
}

impl Tables {
    fn remove(&mut self, grant: Grant) -> Option<Arc<OpenGrant>> {
        let open = self.grants.remove(&grant)?;
        if !self.ungranted.is_empty() {
            for row in &open.rows {
                self.ungranted.remove(&(row.start, grant));
            }
        }
        Some(open)
    }
}

/// The range that holds `[start, start + len)`; never for an empty or overflowing one.
fn find(ranges: &[MemoryRange], start: Address, len: Bytes) -> Option<MemoryRange> {
    let after = ranges.partition_point(|range| range.start <= start);
    let range = *ranges.get(after.checked_sub(1)?)?;
    (len.0 > 0 && range.contains(start, len)).then_some(range)
}

fn overlaps(ranges: &[MemoryRange], other: MemoryRange) -> bool {
    let end = Address(other.start.0.saturating_add(other.len.0));
    let before = ranges.partition_point(|range| range.start < end);
    before > 0 && ranges[before - 1].end().is_none_or(|last| last > other.start)
}

fn checked_ranges(ranges: &[MemoryRange]) -> Result<Vec<MemoryRange>, TransportError> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    if sorted.is_empty() {
        return Err(TransportError::memory(Address(0), Bytes(0), "no range was given"));
    }
    let mut last_end = Address(0);
    let mut merged: Vec<MemoryRange> = Vec::with_capacity(sorted.len());
    for range in &sorted {
        let refuse = |what: &str| Err(TransportError::memory(range.start, range.len, what));
        if range.len.0 == 0 {
            return refuse("an empty range");
        }
        let Some(end) = range.end().filter(|end| isize::try_from(end.0).is_ok()) else {
            return refuse("the range overflows the address space");
        };
        if range.start < last_end {
            return refuse("overlaps another range of the same call");
        }
        // Copies are merged over adjacent rows, so adjacent ranges must be one here.
        match merged.last_mut().filter(|_| range.start == last_end) {
            Some(last) => last.len.0 += range.len.0,
            None => merged.push(*range),
        }
        last_end = end;
    }
    Ok(merged)
}
