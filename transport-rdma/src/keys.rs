//! Remote keys of a registration, as they travel with a layout.
//!
//! A version, the number of rails, then per memory region its first address, its length and
//! one key a rail; regions in order, never overlapping. Little endian throughout.

use crate::config::MAX_RAILS;
use smallvec::SmallVec;

const VERSION: u8 = 1;
/// As many as a layout may have ranges of memory.
const MAX_REGIONS: usize = 65_536;
const HEADER: usize = 6;

/// One memory region of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoteRegion {
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// One key a rail of the peer.
    pub(crate) keys: SmallVec<[u32; 2]>,
}

/// All memory regions of a peer's registration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RemoteKeys {
    pub(crate) rails: usize,
    pub(crate) regions: Vec<RemoteRegion>,
}

impl RemoteKeys {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.regions.len() * (16 + 4 * self.rails));
        bytes.extend([VERSION, self.rails as u8]);
        bytes.extend((self.regions.len() as u32).to_le_bytes());
        for region in &self.regions {
            bytes.extend(region.start.to_le_bytes());
            bytes.extend(region.len.to_le_bytes());
            region.keys.iter().for_each(|key| bytes.extend(key.to_le_bytes()));
        }
        bytes
    }

    /// Decodes what a peer sent `[Z01]`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let Some((header, mut rest)) = bytes.split_at_checked(HEADER) else {
            return Err("no RDMA keys: it does not run the RDMA transport");
        };
        let rails = usize::from(header[1]);
        let count = u32::from_le_bytes([header[2], header[3], header[4], header[5]]) as usize;
        if header[0] != VERSION {
            return Err("RDMA keys of another version");
        }
        if rails == 0 || rails > MAX_RAILS || count > MAX_REGIONS {
            return Err("RDMA keys out of bounds");
        }
        if rest.len() != count * (16 + 4 * rails) {
            return Err("RDMA keys of another length than they claim");
        }
        let mut regions = Vec::with_capacity(count);
        let mut last_end = 0;
        for _ in 0..count {
            let (start, len) = (take_u64(&mut rest), take_u64(&mut rest));
            let end = start.checked_add(len).filter(|_| len > 0 && start >= last_end);
            last_end = end.ok_or("RDMA keys of overlapping or empty regions")?;
            let keys = (0..rails).map(|_| take_u32(&mut rest)).collect();
            regions.push(RemoteRegion { start, len, keys });
        }
        Ok(Self { rails, regions })
    }

    /// The region that holds `address`, by index; `hint` is tried first.
    pub(crate) fn find(&self, address: u64, hint: usize) -> Option<usize> {
        let holds =
            |region: &RemoteRegion| address >= region.start && address - region.start < region.len;
        if self.regions.get(hint).is_some_and(holds) {
            return Some(hint);
        }
        let after = self.regions.partition_point(|region| region.start <= address);
        let index = after.checked_sub(1)?;
        holds(&self.regions[index]).then_some(index)
    }
}

fn take_u64(bytes: &mut &[u8]) -> u64 {
    let (head, rest) = bytes.split_first_chunk::<8>().expect("the length was checked");
    *bytes = rest;
    u64::from_le_bytes(*head)
}

fn take_u32(bytes: &mut &[u8]) -> u32 {
    let (head, rest) = bytes.split_first_chunk::<4>().expect("the length was checked");
    *bytes = rest;
    u32::from_le_bytes(*head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn two() -> RemoteKeys {
        let region = |start, len, key| RemoteRegion {
            start,
            len,
            keys: [key, key + 1].into_iter().collect(),
        };
        RemoteKeys { rails: 2, regions: vec![region(100, 50, 1), region(150, 10, 7)] }
    }

    #[test]
    fn keys_come_back_and_are_found_by_address() {
        let keys = two();
        assert_eq!(RemoteKeys::decode(&keys.encode()), Ok(keys.clone()));
        for (address, found) in
            [(99, None), (100, Some(0)), (149, Some(0)), (150, Some(1)), (160, None)]
        {
            assert_eq!(keys.find(address, 0), found, "{address}");
            assert_eq!(keys.find(address, 9), found, "{address}");
        }
    }

    #[test]
    fn z01_keys_that_contradict_themselves_are_refused() {
        let good = two().encode();
        for len in 0..good.len() {
            assert!(RemoteKeys::decode(&good[..len]).is_err(), "{len}");
        }
        let spoil = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            RemoteKeys::decode(&bytes)
        };
        assert!(spoil(0, 2).is_err(), "version");
        assert!(spoil(1, 0).is_err(), "rails");
        assert!(spoil(1, 17).is_err(), "rails");
        assert!(spoil(5, 0xff).is_err(), "count");
        assert!(spoil(HEADER + 8, 51).is_err(), "overlap");
        assert!(spoil(HEADER + 8, 0).is_err(), "empty");
    }

    proptest! {
        #[test]
        fn z01_any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(keys) = RemoteKeys::decode(&bytes) {
                prop_assert_eq!(keys.encode(), bytes);
            }
        }
    }
}
