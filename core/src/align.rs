//! Pairs the regions of two layouts by layer name, never by position `[A01]`.

use crate::incompatible::Incompatible;
use crate::region::{Region, RegionGroup};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Indices of two regions that hold the same thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// Index into P's regions.
    pub local: usize,
    /// Index into D's regions.
    pub remote: usize,
}

type Occurrences = SmallVec<[usize; 2]>;

/// Whether a region fills its row from the start, so that further layers may hide in it.
#[must_use]
pub fn hides_layers(region: &Region) -> bool {
    region.row_offset == Some(0) && region.payload == region.stride
}

/// Refuses rows without layer names across unequal pipeline-parallel sizes, from either
/// side `[A03]`: the other side's stages cut the row where nobody can see.
///
/// # Errors
/// [`Incompatible::OpaqueRowsAcrossPpSizes`].
pub fn check_rows_named(
    local: &[Region],
    remote: &[Region],
    local_pp: u32,
    remote_pp: u32,
) -> Result<(), Incompatible> {
    if local_pp == remote_pp {
        return Ok(());
    }
    for (side, regions) in [("prefill", local), ("decode", remote)] {
        if let Some(region) = regions.iter().find(|region| hides_layers(region)) {
            return Err(Incompatible::OpaqueRowsAcrossPpSizes {
                local_pp,
                remote_pp,
                side,
                layer_name: region.layer_name.to_string(),
            });
        }
    }
    Ok(())
}

/// Pairs P's regions with D's by (layer name, occurrence), in P's order.
///
/// Layers that only one side has are skipped when the pipeline-parallel sizes differ
/// `[A02]`; no pair at all is then fine, too.
///
/// # Errors
/// A layer or one of its buffers is missing on one side; index, group or shared groups
/// of a pair differ.
pub fn align(
    local: &[Region],
    remote: &[Region],
    local_pp: u32,
    remote_pp: u32,
) -> Result<Vec<Pair>, Incompatible> {
    let skip_absent = local_pp != remote_pp;
    let ours = by_name(local);
    let theirs = by_name(remote);
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut pairs = Vec::with_capacity(local.len());
    for (index, region) in local.iter().enumerate() {
        let name: &str = &region.layer_name;
        let occurrence = seen.entry(name).or_default();
        let found = theirs.get(name).map_or(&[][..], |list| list);
        match found.get(*occurrence) {
            Some(&other) => {
                check_pair(region, &remote[other])?;
                pairs.push(Pair { local: index, remote: other });
            }
            None if skip_absent && found.is_empty() => {}
            None => {
                return Err(Incompatible::LayerMissingOnConsumer {
                    layer_name: name.to_owned(),
                    occurrence: *occurrence,
                    local: ours[name].len(),
                    remote: found.len(),
                });
            }
        }
        *occurrence += 1;
    }
    check_nothing_left(&ours, &theirs, skip_absent)?;
    Ok(pairs)
}

fn by_name(regions: &[Region]) -> BTreeMap<&str, Occurrences> {
    let mut names: BTreeMap<&str, Occurrences> = BTreeMap::new();
    for (index, region) in regions.iter().enumerate() {
        names.entry(&region.layer_name).or_default().push(index);
    }
    names
}

/// D must not wait for layers that nobody will write `[A02]`.
fn check_nothing_left(
    ours: &BTreeMap<&str, Occurrences>,
    theirs: &BTreeMap<&str, Occurrences>,
    skip_absent: bool,
) -> Result<(), Incompatible> {
    for (name, list) in theirs {
        let local = ours.get(name).map_or(0, |list| list.len());
        if local < list.len() && !(skip_absent && local == 0) {
            return Err(Incompatible::LayerMissingOnProducer {
                layer_name: (*name).to_owned(),
                local,
                remote: list.len(),
            });
        }
    }
    Ok(())
}

fn check_pair(local: &Region, remote: &Region) -> Result<(), Incompatible> {
    let layer_name = || local.layer_name.to_string();
    if local.layer_index != remote.layer_index {
        return Err(Incompatible::LayerIndexDiffers {
            layer_name: layer_name(),
            local: local.layer_index,
            remote: remote.layer_index,
        });
    }
    if group_index(&local.group) != group_index(&remote.group) {
        return Err(Incompatible::GroupIndexDiffers {
            layer_name: layer_name(),
            local: group_index(&local.group),
            remote: group_index(&remote.group),
        });
    }
    // An old peer names no shared groups: then ours hold for both.
    let (ours, theirs) = (&local.shared_groups, &remote.shared_groups);
    if !ours.is_empty() && !theirs.is_empty() && ours != theirs {
        return Err(Incompatible::SharedGroupsDiffer {
            layer_name: layer_name(),
            local: ours.to_vec(),
            remote: theirs.to_vec(),
        });
    }
    Ok(())
}

/// The group as it travels: −1 when several share the region.
pub(crate) fn group_index(group: &RegionGroup) -> i64 {
    match group {
        RegionGroup::One(index) => i64::from(*index),
        RegionGroup::Shared(_) => -1,
    }
}
