//! Which bytes a load opens to P, and which may move along with it `[G01, A07]`.

mod two_sides;

use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::layout::{GrantableRows, regions_from_columns};
use kvbaton_core::plan::PreparedLayout;
use kvbaton_core::region::MemoryRange;
use kvbaton_core::wire::{LayoutColumns, LayoutExtension};
use two_sides::*;

fn range(start: u64, len: u64) -> MemoryRange {
    MemoryRange { start: Address(start), len: Bytes(len) }
}

/// Rows of 128 bytes that carry 100, from `base`.
fn padded(base: u64) -> LayoutColumns {
    columns(&[Row { row_offset: 0, ..row(0, base, 128, 100) }])
}

/// Ranges that blocks of one group open, addresses from D's first.
fn opened(memory: &[MemoryRange], ratio: u32, blocks: &[u32]) -> Vec<(u64, u64)> {
    let regions = regions_from_columns(&padded(D), &[]).expect("columns");
    let mut out = Vec::new();
    let rows = GrantableRows::new(&regions, &[attention(1)], ratio, memory);
    rows.granted_rows(&lists(&[blocks]), &mut out);
    out.iter().map(|it| (it.start.0 - D, it.len.0)).collect()
}

#[test]
fn g01_a_row_is_opened_with_its_padding_where_every_row_has_it() {
    assert_eq!(opened(&[], 1, &[1, 2]), [(128, 256)]);
    assert_eq!(opened(&[range(D, 4 * 128)], 1, &[1, 2]), [(128, 256)]);
    // The last row ends with its payload.
    assert_eq!(opened(&[range(D, 3 * 128 + 100)], 1, &[1, 3]), [(128, 100), (384, 100)]);
    // Rows past the memory are left out.
    assert_eq!(opened(&[range(D, 3 * 128)], 1, &[1, 2, 3, 4]), [(128, 256)]);
}

#[test]
fn g01_a05_a_block_opens_all_of_its_kernel_blocks() {
    assert_eq!(opened(&[], 3, &[2, 4]), [(768, 384), (1536, 384)]);
}

#[test]
fn a07_padding_moves_only_where_every_row_has_it_on_both_sides() {
    let whole = [range(P, 4 * 128), range(D, 4 * 128)];
    let short = [range(P, 3 * 128 + 100), range(D, 3 * 128 + 100)];
    let copies = |ours: MemoryRange, theirs: MemoryRange| {
        let mut local = local(tp(0, 1), &padded(P), &[attention(1)]);
        local.memory = vec![ours];
        let mut columns = padded(D);
        columns.extension =
            Some(LayoutExtension { memory: vec![theirs], ..LayoutExtension::default() });
        let prepared = PreparedLayout::prepare(&local, peer(0, 1), &columns).expect("alike");
        relative(&plan(&prepared, &[&[1, 2]], &[&[2, 3]], UNKNOWN).expect("plan"))
    };
    assert_eq!(copies(whole[0], whole[1]), [(128, 256, 256)]);
    let rows = [(128, 256, 100), (256, 384, 100)];
    assert_eq!(copies(short[0], whole[1]), rows);
    assert_eq!(copies(whole[0], short[1]), rows);
}
