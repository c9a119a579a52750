//! Registered memory: each range in chunks that every device takes, each chunk registered
//! with every rail.

use crate::gpu::GpuMemory;
use crate::keys::{RemoteKeys, RemoteRegion};
use crate::promise::Promise;
use crate::rail::Rail;
use crate::verbs::{Dmabuf, MemoryRegion};
use kvbaton_actors::transport::TransportError;
use kvbaton_core::ids::{Address, Bytes, Generation};
use kvbaton_core::region::{Copy, MemoryRange};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A part of a range that is one memory region on each rail.
pub(crate) struct Chunk {
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// Whether the processor cannot read it.
    pub(crate) on_gpu: bool,
    regions: SmallVec<[MemoryRegion; 2]>,
}

impl Chunk {
    /// The key for reading it on a rail.
    pub(crate) fn local_key(&self, rail: usize) -> u32 {
        self.regions[rail].local_key()
    }
}

/// One registration. Who uses its memory holds it; it ends when nobody does.
pub(crate) struct Registered {
    pub(crate) generation: Generation,
    /// In order, never overlapping.
    pub(crate) chunks: Vec<Chunk>,
    ended: Promise<()>,
}

impl Registered {
    /// Pins ranges that do not overlap. All or nothing.
    ///
    /// # Safety
    /// They must stay mapped until the registration has ended.
    pub(crate) unsafe fn new(
        generation: Generation,
        ranges: &[MemoryRange],
        rails: &[Arc<Rail>],
        region_bytes: u64,
        gpu: &dyn GpuMemory,
    ) -> Result<Self, TransportError> {
        let most = rails.iter().map(|rail| rail.context().limits().max_mr_size).min();
        let most = most.unwrap_or(u64::MAX).min(region_bytes);
        let mut chunks = Vec::new();
        for range in merged(ranges) {
            for part in parts(range, most) {
                // SAFETY: a part of what the caller vouches for.
                chunks.push(unsafe { pin(part, rails, gpu) }?);
            }
        }
        Ok(Self { generation, chunks, ended: Promise::new() })
    }

    /// Kept once nobody uses the memory any more.
    pub(crate) fn ended(&self) -> Promise<()> {
        self.ended.clone()
    }

    /// What peers need to write there.
    pub(crate) fn remote_keys(&self, rails: usize) -> RemoteKeys {
        let region = |chunk: &Chunk| RemoteRegion {
            start: chunk.start,
            len: chunk.len,
            keys: chunk.regions.iter().map(MemoryRegion::remote_key).collect(),
        };
        RemoteKeys { rails, regions: self.chunks.iter().map(region).collect() }
    }

    /// The chunk that holds `address`, by index; `hint` is tried first.
    pub(crate) fn find(&self, address: u64, hint: usize) -> Option<usize> {
        let holds = |chunk: &Chunk| address >= chunk.start && address - chunk.start < chunk.len;
        if self.chunks.get(hint).is_some_and(holds) {
            return Some(hint);
        }
        let index = self.chunks.partition_point(|chunk| chunk.start <= address).checked_sub(1)?;
        holds(&self.chunks[index]).then_some(index)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // Once a region was dropped, nothing lands in it and nothing reads it.
        self.chunks.clear();
        self.ended.set(());
    }
}

/// # Safety
/// The part must stay mapped until the chunk is dropped.
unsafe fn pin(
    part: MemoryRange,
    rails: &[Arc<Rail>],
    gpu: &dyn GpuMemory,
) -> Result<Chunk, TransportError> {
    let refuse = |what: String| TransportError::memory(part.start, part.len, what);
    let exported = gpu.export(part).map_err(refuse)?;
    let dmabuf =
        exported.as_ref().map(|it| Dmabuf { fd: it.buffer.as_raw_fd(), offset: it.offset });
    let mut regions = SmallVec::new();
    for rail in rails {
        // SAFETY: the caller vouches for the part.
        let region = unsafe { rail.domain.register(part, dmabuf) };
        regions.push(region.map_err(|error| refuse(error.to_string()))?);
    }
    // The regions keep the exported buffer alive; its descriptor is not needed any more.
    let on_gpu = exported.is_some();
    Ok(Chunk { start: part.start.0, len: part.len.0, on_gpu, regions })
}

/// Sorted, and adjacent ranges made one.
fn merged(ranges: &[MemoryRange]) -> Vec<MemoryRange> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let mut merged: Vec<MemoryRange> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match merged.last_mut().filter(|last| last.end() == Some(range.start)) {
            Some(last) => last.len.0 += range.len.0,
            None => merged.push(range),
        }
    }
    merged
}

/// Cuts a range into parts of at most `most` bytes, at page boundaries of 2 MiB or, when
/// `most` is smaller, of 4 KiB `[F72]`.
fn parts(range: MemoryRange, most: u64) -> impl Iterator<Item = MemoryRange> {
    let page = if most >= 4 << 20 { 2 << 20 } else { 4096 };
    let end = range.start.0 + range.len.0;
    let mut at = range.start.0;
    std::iter::from_fn(move || {
        if at == end {
            return None;
        }
        let limit = at.saturating_add(most);
        let aligned = limit / page * page;
        let stop = if limit >= end {
            end
        } else if aligned > at {
            aligned
        } else {
            limit
        };
        let part = MemoryRange { start: Address(at), len: Bytes(stop - at) };
        at = stop;
        Some(part)
    })
}

/// All live registrations.
#[derive(Default)]
pub(crate) struct Registrations(Mutex<BTreeMap<Generation, Arc<Registered>>>);

impl Registrations {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Generation, Arc<Registered>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, registered: Registered) {
        self.lock().insert(registered.generation, Arc::new(registered));
    }

    /// Takes a registration out; `None` for an unknown one.
    pub(crate) fn remove(&self, generation: Generation) -> Option<Arc<Registered>> {
        self.lock().remove(&generation)
    }

    pub(crate) fn contains(&self, generation: Generation) -> bool {
        self.lock().contains_key(&generation)
    }

    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.lock());
        drop(all);
    }

    /// The registrations that the sources of a write lie in.
    pub(crate) fn sources(&self, copies: &[Copy]) -> Result<Sources, TransportError> {
        let all = self.lock();
        let mut found = Sources::new();
        for copy in copies {
            let refuse = || {
                let what = "the source of a write lies outside this node's registered memory";
                TransportError::memory(copy.source, copy.len, what)
            };
            if copy.len.0 == 0 {
                return Err(refuse());
            }
            let holds = |it: &Arc<Registered>| it.holds(copy.source.0, copy.len.0);
            if found.iter().any(holds) {
                continue;
            }
            found.push(all.values().find(|it| holds(it)).cloned().ok_or_else(refuse)?);
        }
        Ok(found)
    }
}

/// The registrations that a write reads.
pub(crate) type Sources = SmallVec<[Arc<Registered>; 1]>;

impl Registered {
    /// Whether every byte lies in it, over as many adjacent chunks as it takes.
    fn holds(&self, start: u64, len: u64) -> bool {
        let Some(end) = start.checked_add(len) else { return false };
        let Some(mut index) = self.find(start, 0) else { return false };
        loop {
            let chunk = &self.chunks[index];
            let chunk_end = chunk.start + chunk.len;
            if end <= chunk_end {
                return true;
            }
            index += 1;
            if self.chunks.get(index).is_none_or(|next| next.start != chunk_end) {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, len: u64) -> MemoryRange {
        MemoryRange { start: Address(start), len: Bytes(len) }
    }

    #[test]
    fn f72_a_range_is_cut_at_pages_into_parts_that_a_device_takes() {
        let cut = |start, len, most| {
            parts(range(start, len), most).map(|it| (it.start.0, it.len.0)).collect::<Vec<_>>()
        };
        assert_eq!(cut(100, 50, u64::MAX), [(100, 50)]);
        assert_eq!(cut(0, 8192, 8192), [(0, 8192)]);
        assert_eq!(cut(100, 10_000, 8192), [(100, 8092), (8192, 1908)]);
        let (mib, gib) = (1 << 20, 1 << 30);
        let five = cut(mib, 5 * gib, 2 * gib);
        assert_eq!(five.len(), 3);
        assert!(five[1..].iter().all(|(start, _)| start % (2 * mib) == 0), "{five:?}");
        assert_eq!(five.iter().map(|(_, len)| len).sum::<u64>(), 5 * gib);
        assert!(five.iter().all(|(_, len)| *len <= 2 * gib));
    }

    #[test]
    fn adjacent_ranges_become_one_region() {
        let ranges = [range(300, 10), range(100, 50), range(150, 50)];
        assert_eq!(merged(&ranges), [range(100, 100), range(300, 10)]);
    }
}
