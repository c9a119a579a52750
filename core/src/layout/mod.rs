//! From KV tensors to regions: what a node registers and tells its peers.
//!
//! The regions must equal the stock connector's, in its order, because stock peers pair
//! them by name and occurrence.

mod columns;
mod error;
mod granted;
mod tensor;

pub use columns::{MAX_GROUPS, MAX_NAME_LEN, MAX_REGIONS, regions_from_columns};
pub(crate) use columns::{check_memory, rows_are_whole, rows_in_memory};
pub use error::LayoutError;
pub use granted::GrantableRows;
pub use tensor::{Tensor, TensorKind, TensorSpec, layer_index};

use crate::ids::{Address, Bytes};
use crate::region::{MemoryRange, Region, RegionGroup};
use smallvec::smallvec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a node registered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// Regions in registration order.
    pub regions: Vec<Region>,
    /// Per region: rows (kernel blocks) that it has and that lie whole in its storage.
    pub rows: Vec<u64>,
    /// Per region: whether it is a whole row that hides the names of its layers `[A03]`.
    pub opaque: Vec<bool>,
    /// Memory to register with the data plane, in the order in which tensors named it.
    pub storages: Vec<MemoryRange>,
}

/// One view as it will be registered.
struct View {
    base: u64,
    stride: u64,
    payload: u64,
    rows: u64,
    row_offset: Option<u64>,
    opaque: bool,
}

impl Layout {
    /// Registers `tensors`, whose engine has `blocks` logical blocks of
    /// `kernel_blocks_per_block` kernel blocks each.
    ///
    /// # Errors
    /// No tensors, or one that is not what it claims; see [`LayoutError`].
    pub fn build(
        tensors: &[Tensor],
        blocks: u64,
        kernel_blocks_per_block: u32,
    ) -> Result<Self, LayoutError> {
        if tensors.is_empty() {
            return Err(LayoutError::NothingRegistered);
        }
        let ratio = kernel_blocks_per_block.max(1);
        let flat_rows = blocks.saturating_mul(u64::from(ratio));
        let mut layout = Self::default();
        let mut views: BTreeMap<(u64, u64, u64), usize> = BTreeMap::new();
        for tensor in tensors {
            tensor.check()?;
            let index = layer_index(&tensor.layer_name)?;
            layout.add_storage(tensor)?;
            if let Some(view) = packed_view(tensor, flat_rows) {
                let key = (view.base, view.stride, view.payload);
                if let Some(&known) = views.get(&key) {
                    share(&mut layout.regions[known], tensor.group);
                    continue;
                }
                views.insert(key, layout.regions.len());
                layout.add(tensor, index, view);
            } else {
                layout.add_plain(tensor, index, ratio)?;
            }
        }
        Ok(layout)
    }

    /// Whether any region hides layer names.
    #[must_use]
    pub fn has_opaque_rows(&self) -> bool {
        self.opaque.contains(&true)
    }

    fn add_storage(&mut self, tensor: &Tensor) -> Result<(), LayoutError> {
        match self.storages.iter().find(|known| known.start == tensor.storage.start) {
            None => self.storages.push(tensor.storage),
            Some(known) if *known == tensor.storage => {}
            Some(known) => {
                return Err(LayoutError::Tensor {
                    layer_name: tensor.layer_name.clone(),
                    what: format!(
                        "its storage at {:#x} has {} bytes here and {} for an earlier tensor",
                        known.start.0, tensor.storage.len, known.len
                    ),
                });
            }
        }
        Ok(())
    }

    /// A tensor whose rows are no pages of a shared allocation: one region, or one per
    /// head when the heads of a block are scattered.
    fn add_plain(&mut self, tensor: &Tensor, index: i64, ratio: u32) -> Result<(), LayoutError> {
        let stride = tensor.row_stride();
        if tensor.is_dense_inside(1) {
            let payload = plain_payload(tensor, stride, ratio)?;
            let base = tensor.address().0;
            return self.add_checked(tensor, index, base, stride, payload);
        }
        if !tensor.is_dense_inside(2) {
            return Err(LayoutError::Tensor {
                layer_name: tensor.layer_name.clone(),
                what: format!(
                    "neither its blocks nor its heads are contiguous (shape {:?}, strides {:?})",
                    tensor.shape, tensor.strides
                ),
            });
        }
        // Checked before they are made: with a stride of 0 any number of heads fits.
        let heads = tensor.shape[1];
        if heads > MAX_REGIONS as u64 {
            return Err(LayoutError::Tensor {
                layer_name: tensor.layer_name.clone(),
                what: format!(
                    "its {heads} heads would each be a region, and a layout has at most \
                     {MAX_REGIONS} regions"
                ),
            });
        }
        let payload = tensor.inner_bytes(2);
        for head in 0..heads {
            let base = tensor.address().0 + head * tensor.strides[1] * tensor.element_size.0;
            self.add_checked(tensor, index, base, stride, payload)?;
        }
        Ok(())
    }

    fn add_checked(
        &mut self,
        tensor: &Tensor,
        index: i64,
        base: u64,
        stride: u64,
        payload: u64,
    ) -> Result<(), LayoutError> {
        if payload > stride {
            return Err(LayoutError::PayloadExceedsStride {
                layer_name: tensor.layer_name.clone(),
                payload,
                stride,
            });
        }
        let end = tensor.storage.start.0 + tensor.storage.len.0;
        let rows = rows_in(base, stride, payload, end).min(tensor.shape[0]);
        self.add(
            tensor,
            index,
            View { base, stride, payload, rows, row_offset: None, opaque: false },
        );
        Ok(())
    }

    fn add(&mut self, tensor: &Tensor, layer_index: i64, view: View) {
        self.regions.push(Region {
            layer_name: Arc::from(tensor.layer_name.as_str()),
            layer_index,
            base: Address(view.base),
            stride: Bytes(view.stride),
            payload: Bytes(view.payload),
            group: RegionGroup::One(tensor.group),
            shared_groups: smallvec![tensor.group],
            row_offset: view.row_offset,
        });
        self.rows.push(view.rows);
        self.opaque.push(view.opaque);
    }
}

/// Another group uses the same view.
fn share(region: &mut Region, group: u32) {
    if !region.shared_groups.contains(&group) {
        region.shared_groups.push(group);
        region.group = RegionGroup::Shared(region.shared_groups.clone());
    }
}

/// The view of a tensor whose storage is a run of block rows, or `None`.
fn packed_view(tensor: &Tensor, flat_rows: u64) -> Option<View> {
    let kind = tensor.spec.kind;
    if matches!(kind, TensorKind::State | TensorKind::CircularBuffer) {
        return None;
    }
    let (start, len) = (tensor.storage.start.0, tensor.storage.len.0);
    let flat = tensor.dims() == 1;
    let stride = if flat {
        // A flat buffer is a run of pages when no whole page is left over.
        let page = tensor.spec.page_size.0;
        let used = flat_rows.checked_mul(page).filter(|&used| used > 0)?;
        (used <= len && len - used < page).then_some(page)?
    } else {
        let stride = tensor.row_stride();
        let is_run = tensor.shape[0].checked_mul(stride) == Some(len);
        is_run.then_some(stride)?
    };
    if kind != TensorKind::Latent && tensor.heads_are_packed() {
        return None;
    }
    let page_contiguous = !flat && tensor.row_is_contiguous() && tensor.inner_bytes(1) <= stride;
    if page_contiguous {
        let (base, payload) = (tensor.address().0, tensor.inner_bytes(1));
        // Rows are contiguous, so that all of them lie in the storage.
        let rows = tensor.shape[0];
        let row_offset = Some(base - start);
        return Some(View { base, stride, payload, rows, row_offset, opaque: false });
    }
    let rows = len / stride;
    Some(View { base: start, stride, payload: stride, rows, row_offset: Some(0), opaque: true })
}

/// What a plain row carries: the kernel block's part of the page, not the logical page.
fn plain_payload(tensor: &Tensor, stride: u64, ratio: u32) -> Result<u64, LayoutError> {
    let page_size = tensor.spec.page_size.0;
    match tensor.spec.kind {
        TensorKind::Attention | TensorKind::Latent => {
            if page_size == 0 || !page_size.is_multiple_of(u64::from(ratio)) {
                return Err(LayoutError::PageDoesNotDivide {
                    layer_name: tensor.layer_name.clone(),
                    page_size,
                    ratio,
                });
            }
            Ok(page_size / u64::from(ratio))
        }
        TensorKind::State if page_size == 0 => Err(LayoutError::PageDoesNotDivide {
            layer_name: tensor.layer_name.clone(),
            page_size,
            ratio: 1,
        }),
        TensorKind::State => Ok(page_size),
        TensorKind::CircularBuffer => Ok(stride),
    }
}

/// Rows of `payload` bytes, `stride` apart from `base`, that lie below `end`.
pub(crate) fn rows_in(base: u64, stride: u64, payload: u64, end: u64) -> u64 {
    match end.checked_sub(base).and_then(|room| room.checked_sub(payload)) {
        Some(rest) if stride > 0 => (rest / stride).saturating_add(1),
        _ => 0,
    }
}
