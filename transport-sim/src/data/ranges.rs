//! Ranges in order, merged.

use kvbaton_core::region::MemoryRange;

/// Sorted and merged; overlaps are joined.
#[must_use]
pub fn merged(mut ranges: Vec<MemoryRange>) -> Vec<MemoryRange> {
    ranges.retain(|range| range.len.0 > 0);
    ranges.sort_unstable();
    let mut out: Vec<MemoryRange> = Vec::with_capacity(ranges.len().min(16));
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.start.0 <= last.start.0 + last.len.0 => {
                let end = (range.start.0 + range.len.0).max(last.start.0 + last.len.0);
                last.len.0 = end - last.start.0;
            }
            _ => out.push(range),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvbaton_core::ids::{Address, Bytes};

    #[test]
    fn neighbours_and_overlaps_are_joined() {
        let range = |start, len| MemoryRange { start: Address(start), len: Bytes(len) };
        let all = vec![range(8, 4), range(0, 4), range(4, 2), range(9, 1), range(20, 0)];
        assert_eq!(merged(all), [range(0, 6), range(8, 4)]);
    }
}
