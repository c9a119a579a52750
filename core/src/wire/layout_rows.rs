//! Layout columns of equal length, region by region.
//!
//! First a dictionary of region kinds (layer name without its number, stride, payload,
//! group, shared groups, row offset), then per region its kind, layer index, number and
//! address, index and address as differences from the region before.
//!
//! A dictionary lets few bytes stand for many. What a message may grow to is bounded by
//! [`MOST_GROWTH`]; a layout that would pass the bound is written plain.

use super::layout_compact::{list, put_signed_list, read_shared_groups};
use super::names;
use super::reader::Result;
use super::varint::{self, Varints};
use super::{LayoutColumns, Limits, Problem};
use std::collections::BTreeMap;

/// Bytes of names and shared groups that each byte of rows may stand for.
const MOST_GROWTH: usize = 32;

/// The smallest kind: eight fields of a byte.
const LEAST_KIND_BYTES: usize = 8;
/// The smallest region: kind, layer index and address of a byte.
const LEAST_REGION_BYTES: usize = 3;

/// Where a region's layer number comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Number {
    /// The name has none.
    Absent = 0,
    /// It is the region's layer index.
    LayerIndex = 1,
    /// It stands with the region.
    Written = 2,
}

/// What many regions of a layout have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kind<'a, S> {
    number: Number,
    prefix: &'a str,
    suffix: &'a str,
    stride: u64,
    payload: u64,
    group: i64,
    shared: S,
    row_offset: i64,
}

/// Appends the columns; false, and `out` is of no use, when rows cannot hold them.
pub(super) fn write(layout: &LayoutColumns, out: &mut Vec<u8>) -> bool {
    if !has_equal_columns(layout) {
        return false;
    }
    let mut indices = BTreeMap::new();
    let mut kinds = Vec::new();
    let mut regions = Vec::new();
    let mut grown = 0;
    let (mut last_layer, mut last_base) = (0i64, 0u64);
    for row in 0..layout.base_addrs.len() {
        let (kind, number) = kind_of(layout, row);
        let next = indices.len() as u64;
        let index = *indices.entry(kind).or_insert_with(|| {
            write_kind(&kind, &mut kinds);
            next
        });
        varint::put(&mut regions, index);
        let (layer, base) = (layout.layer_indices[row], layout.base_addrs[row]);
        varint::put_signed(&mut regions, layer.wrapping_sub(last_layer));
        if kind.number == Number::Written {
            varint::put(&mut regions, number);
        }
        varint::put_signed(&mut regions, base.wrapping_sub(last_base) as i64);
        (last_layer, last_base) = (layer, base);
        grown += growth(&layout.layer_names[row], kind.shared);
    }
    let start = out.len();
    varint::put(out, indices.len() as u64);
    out.extend_from_slice(&kinds);
    varint::put(out, layout.base_addrs.len() as u64);
    out.extend_from_slice(&regions);
    grown <= (out.len() - start).saturating_mul(MOST_GROWTH)
}

fn has_equal_columns(layout: &LayoutColumns) -> bool {
    let regions = layout.base_addrs.len();
    [
        layout.block_lens.len(),
        layout.kv_block_lens.len(),
        layout.layer_names.len(),
        layout.layer_indices.len(),
        layout.group_indices.len(),
        layout.shared_group_ids.len(),
        layout.row_offsets.len(),
    ]
    .iter()
    .all(|len| *len == regions)
}

/// Bytes that a region's name and shared groups take once read.
fn growth(name: &str, shared: &[i64]) -> usize {
    name.len() + size_of_val(shared)
}

/// The kind of a region, and the number in its name (0 without one).
fn kind_of(layout: &LayoutColumns, row: usize) -> (Kind<'_, &[i64]>, u64) {
    let parts = names::split(&layout.layer_names[row]);
    let number = match parts.number {
        None => Number::Absent,
        Some(number) if i64::try_from(number) == Ok(layout.layer_indices[row]) => {
            Number::LayerIndex
        }
        Some(_) => Number::Written,
    };
    let kind = Kind {
        number,
        prefix: parts.prefix,
        suffix: parts.suffix,
        stride: layout.block_lens[row],
        payload: layout.kv_block_lens[row],
        group: layout.group_indices[row],
        shared: layout.shared_group_ids[row].as_slice(),
        row_offset: layout.row_offsets[row],
    };
    (kind, parts.number.unwrap_or(0))
}

fn write_kind(kind: &Kind<'_, &[i64]>, out: &mut Vec<u8>) {
    varint::put(out, kind.number as u64);
    varint::put_bytes(out, kind.prefix.as_bytes());
    varint::put_bytes(out, kind.suffix.as_bytes());
    varint::put(out, kind.stride);
    varint::put(out, kind.payload);
    varint::put_signed(out, kind.group);
    put_signed_list(out, kind.shared);
    varint::put_signed(out, kind.row_offset);
}

fn read_kind<'a>(varints: &mut Varints<'a>, limits: &Limits) -> Result<Kind<'a, Vec<i64>>> {
    let number = match varints.get()? {
        0 => Number::Absent,
        1 => Number::LayerIndex,
        2 => Number::Written,
        other => return Err(varints.error(Problem::Unknown(other))),
    };
    // Fields are read in the order in which `write_kind` writes them.
    Ok(Kind {
        number,
        prefix: varints.get_str(limits.string_bytes)?,
        suffix: varints.get_str(limits.string_bytes)?,
        stride: varints.get()?,
        payload: varints.get()?,
        group: varints.get_signed()?,
        shared: read_shared_groups(varints, limits)?,
        row_offset: varints.get_signed()?,
    })
}

/// Reads what [`write()`] wrote.
pub(super) fn read(varints: &mut Varints<'_>, limits: &Limits) -> Result<LayoutColumns> {
    let mut room = varints.remaining().saturating_mul(MOST_GROWTH);
    let kinds = list(varints, (limits.regions, "kinds of region"), LEAST_KIND_BYTES, |v| {
        read_kind(v, limits)
    })?;
    let regions = varints.get_count((limits.regions, "regions"), LEAST_REGION_BYTES)?;
    let mut layout = with_capacity(regions);
    let (mut layer, mut base) = (0i64, 0u64);
    for _ in 0..regions {
        let index = varints.get()?;
        let kind = usize::try_from(index)
            .ok()
            .and_then(|index| kinds.get(index))
            .ok_or_else(|| varints.error(Problem::NoSuchEntry(index)))?;
        layer = layer.wrapping_add(varints.get_signed()?);
        let name = read_name(varints, kind, layer, &mut room, limits)?;
        base = base.wrapping_add_signed(varints.get_signed()?);
        layout.base_addrs.push(base);
        layout.block_lens.push(kind.stride);
        layout.kv_block_lens.push(kind.payload);
        layout.layer_names.push(name);
        layout.layer_indices.push(layer);
        layout.group_indices.push(kind.group);
        layout.shared_group_ids.push(kind.shared.clone());
        layout.row_offsets.push(kind.row_offset);
    }
    Ok(layout)
}

fn with_capacity(regions: usize) -> LayoutColumns {
    LayoutColumns {
        base_addrs: Vec::with_capacity(regions),
        block_lens: Vec::with_capacity(regions),
        kv_block_lens: Vec::with_capacity(regions),
        layer_names: Vec::with_capacity(regions),
        layer_indices: Vec::with_capacity(regions),
        group_indices: Vec::with_capacity(regions),
        shared_group_ids: Vec::with_capacity(regions),
        row_offsets: Vec::with_capacity(regions),
        extension: None,
    }
}

/// A region's layer name, within its string limit and the `room` left for growth, which
/// is checked before anything is built.
fn read_name(
    varints: &mut Varints<'_>,
    kind: &Kind<'_, Vec<i64>>,
    layer: i64,
    room: &mut usize,
    limits: &Limits,
) -> Result<String> {
    let number = match kind.number {
        Number::Absent => None,
        Number::LayerIndex => Some(
            u64::try_from(layer)
                .map_err(|_| varints.error(Problem::OutOfRange { expected: "a layer number" }))?,
        ),
        Number::Written => Some(varints.get()?),
    };
    let digits = number.map_or(0, |number| number.checked_ilog10().unwrap_or(0) as usize + 1);
    let len = kind.prefix.len() + digits + kind.suffix.len();
    if len > limits.string_bytes {
        let limit = limits.string_bytes as u64;
        return Err(varints.error(Problem::OverLimit { what: "bytes in a string", limit }));
    }
    *room = room.checked_sub(len + size_of_val(kind.shared.as_slice())).ok_or_else(|| {
        varints.error(Problem::OverLimit {
            what: "bytes of layout per byte sent",
            limit: MOST_GROWTH as u64,
        })
    })?;
    let mut name = String::with_capacity(len);
    name.push_str(kind.prefix);
    if let Some(number) = number {
        name.push_str(&number.to_string());
    }
    name.push_str(kind.suffix);
    Ok(name)
}
