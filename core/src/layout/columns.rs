//! A layout as it travels, column by column, and back.

use super::{Layout, LayoutError};
use crate::align::group_index;
use crate::ids::{Address, Bytes};
use crate::region::{MemoryRange, Region, RegionGroup};
use crate::wire::LayoutColumns;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most regions that a peer's layout may have `[Z01]`.
pub const MAX_REGIONS: usize = 16_384;
/// Largest number of KV groups `[Z01]`.
pub const MAX_GROUPS: usize = 1_024;
/// Longest layer name, in bytes `[Z01]`.
pub const MAX_NAME_LEN: usize = 1_024;

impl Layout {
    /// The layout as stock peers send it; without our extension.
    #[must_use]
    pub fn to_columns(&self) -> LayoutColumns {
        let mut columns = LayoutColumns::default();
        for region in &self.regions {
            columns.base_addrs.push(region.base.0);
            columns.block_lens.push(region.stride.0);
            columns.kv_block_lens.push(region.payload.0);
            columns.layer_names.push(region.layer_name.to_string());
            columns.layer_indices.push(region.layer_index);
            columns.group_indices.push(group_index(&region.group));
            let shared = region.shared_groups.iter().map(|&group| i64::from(group)).collect();
            columns.shared_group_ids.push(shared);
            let offset = region.row_offset.and_then(|offset| i64::try_from(offset).ok());
            columns.row_offsets.push(offset.unwrap_or(-1));
        }
        columns
    }
}

/// Reads a peer's layout. Nothing in it is trusted `[Z01]`.
///
/// Columns that old peers do not send get defaults: groups those of `ours` by layer name,
/// else 0; no shared groups; no row offsets.
///
/// # Errors
/// Columns of differing lengths, values that cannot be, a region outside the memory that
/// the peer declared `[A09]`.
pub fn regions_from_columns(
    columns: &LayoutColumns,
    ours: &[Region],
) -> Result<Vec<Region>, LayoutError> {
    check_lengths(columns)?;
    let memory = columns.extension.as_ref().map_or(&[][..], |extension| &extension.memory);
    check_memory(memory)?;
    let mut groups = BTreeMap::new();
    if columns.group_indices.is_empty() {
        groups.extend(ours.iter().map(|region| (&*region.layer_name, &region.group)));
    }
    let count = columns.base_addrs.len();
    let mut names: BTreeMap<&str, Arc<str>> = BTreeMap::new();
    let mut regions = Vec::with_capacity(count);
    for index in 0..count {
        let name = columns.layer_names[index].as_str();
        let shared_groups = shared_groups(columns, index)?;
        let group = match columns.group_indices.get(index) {
            Some(&-1) => RegionGroup::Shared(shared_groups.clone()),
            Some(&group) => {
                RegionGroup::One(bounded_group("registered_group_indices", index, group)?)
            }
            None => groups.get(name).map_or(RegionGroup::One(0), |&group| group.clone()),
        };
        let region = Region {
            layer_name: names.entry(name).or_insert_with(|| Arc::from(name)).clone(),
            layer_index: columns.layer_indices[index],
            base: Address(columns.base_addrs[index]),
            stride: Bytes(columns.block_lens[index]),
            payload: Bytes(columns.kv_block_lens[index]),
            group,
            shared_groups,
            row_offset: row_offset(columns, index)?,
        };
        check_region(&region, index, memory)?;
        regions.push(region);
    }
    Ok(regions)
}

fn check_lengths(columns: &LayoutColumns) -> Result<(), LayoutError> {
    let expected = columns.base_addrs.len();
    if expected > MAX_REGIONS {
        return Err(LayoutError::TooLarge { what: "regions", len: expected, limit: MAX_REGIONS });
    }
    let mandatory = [
        ("block_lens", columns.block_lens.len()),
        ("kv_block_lens", columns.kv_block_lens.len()),
        ("registered_layer_names", columns.layer_names.len()),
        ("registered_layer_indices", columns.layer_indices.len()),
    ];
    let optional = [
        ("registered_group_indices", columns.group_indices.len()),
        ("registered_shared_group_ids", columns.shared_group_ids.len()),
        ("registered_row_offsets", columns.row_offsets.len()),
    ];
    let optional = optional.into_iter().filter(|&(_, len)| len != 0);
    for (column, len) in mandatory.into_iter().chain(optional) {
        if len != expected {
            return Err(LayoutError::ColumnLength { column, len, expected });
        }
    }
    for name in &columns.layer_names {
        if name.len() > MAX_NAME_LEN {
            let (len, limit) = (name.len(), MAX_NAME_LEN);
            return Err(LayoutError::TooLarge { what: "bytes in a layer name", len, limit });
        }
    }
    Ok(())
}

/// Ranges must be sorted and apart, so that one look-up finds the only candidate.
pub(crate) fn check_memory(memory: &[MemoryRange]) -> Result<(), LayoutError> {
    let mut last = 0;
    for (index, range) in memory.iter().enumerate() {
        match range.end() {
            Some(end) if range.len.0 > 0 && range.start.0 >= last => last = end.0,
            _ => return Err(LayoutError::MemoryRange(index)),
        }
    }
    Ok(())
}

fn bounded_group(column: &'static str, region: usize, group: i64) -> Result<u32, LayoutError> {
    match u32::try_from(group) {
        Ok(bounded) if (bounded as usize) < MAX_GROUPS => Ok(bounded),
        _ => Err(LayoutError::ColumnValue { column, region, value: group.to_string() }),
    }
}

fn shared_groups(columns: &LayoutColumns, index: usize) -> Result<SmallVec<[u32; 4]>, LayoutError> {
    let Some(ids) = columns.shared_group_ids.get(index) else { return Ok(SmallVec::new()) };
    if ids.len() > MAX_GROUPS {
        let (len, limit) = (ids.len(), MAX_GROUPS);
        return Err(LayoutError::TooLarge { what: "shared groups", len, limit });
    }
    let column = "registered_shared_group_ids";
    ids.iter().map(|&id| bounded_group(column, index, id)).collect()
}

fn row_offset(columns: &LayoutColumns, index: usize) -> Result<Option<u64>, LayoutError> {
    match columns.row_offsets.get(index) {
        None | Some(-1) => Ok(None),
        Some(&offset) => match u64::try_from(offset) {
            Ok(offset) => Ok(Some(offset)),
            Err(_) => Err(LayoutError::ColumnValue {
                column: "registered_row_offsets",
                region: index,
                value: offset.to_string(),
            }),
        },
    }
}

fn check_region(region: &Region, index: usize, memory: &[MemoryRange]) -> Result<(), LayoutError> {
    let (base, stride, payload) = (region.base.0, region.stride.0, region.payload.0);
    if payload == 0 {
        let value = "an empty row".to_owned();
        return Err(LayoutError::ColumnValue { column: "kv_block_lens", region: index, value });
    }
    if payload > stride {
        return Err(LayoutError::PayloadExceedsStride {
            layer_name: region.layer_name.to_string(),
            payload,
            stride,
        });
    }
    if base.checked_add(stride).is_none() {
        let value = format!("{base:#x} with rows of {stride} bytes");
        return Err(LayoutError::ColumnValue {
            column: "kv_caches_base_addr",
            region: index,
            value,
        });
    }
    if !memory.is_empty() && rows_in_memory(base, stride, payload, memory) == 0 {
        let layer_name = region.layer_name.to_string();
        return Err(LayoutError::OutsideMemory { layer_name, base, len: payload });
    }
    Ok(())
}

/// Rows of `len` bytes, `stride` apart from `base`, that lie whole in the one range of
/// `memory` around `base`. Without any range: as many as there are addresses for.
pub(crate) fn rows_in_memory(base: u64, stride: u64, len: u64, memory: &[MemoryRange]) -> u64 {
    if memory.is_empty() {
        return super::rows_in(base, stride, len, u64::MAX);
    }
    let after = memory.partition_point(|range| range.start.0 <= base);
    let end = after.checked_sub(1).and_then(|index| memory[index].end());
    end.map_or(0, |end| super::rows_in(base, stride, len, end.0))
}

/// Whether every row that has room for `len` bytes has room for its whole stride.
pub(crate) fn rows_are_whole(base: u64, stride: u64, len: u64, memory: &[MemoryRange]) -> bool {
    memory.is_empty()
        || rows_in_memory(base, stride, stride, memory) == rows_in_memory(base, stride, len, memory)
}
