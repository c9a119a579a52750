//! KV tensors as the engine describes them, and the geometry of their views.

use super::error::LayoutError;
use crate::ids::{Address, Bytes};
use crate::region::MemoryRange;

/// What a tensor's rows hold, as far as it decides how they are registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TensorKind {
    /// Keys and values per head.
    Attention,
    /// Latent KV (MLA), the same on every rank.
    Latent,
    /// Recurrent state (Mamba, GDN).
    State,
    /// A circular buffer: rows are used as they are.
    CircularBuffer,
}

/// What the engine's KV cache configuration says of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorSpec {
    /// What the rows hold.
    pub kind: TensorKind,
    /// Bytes of one logical block's page, padding included.
    pub page_size: Bytes,
}

/// One KV cache tensor: a strided view into a storage. Shape and strides count elements,
/// outermost (blocks) first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// The layer, as the engine names it.
    pub layer_name: String,
    /// The KV cache group of the layer.
    pub group: u32,
    /// The allocation that the tensor views.
    pub storage: MemoryRange,
    /// Distance of the tensor's first byte from the storage's.
    pub offset: Bytes,
    /// Extent per dimension.
    pub shape: Vec<u64>,
    /// Distance per dimension, in elements.
    pub strides: Vec<u64>,
    /// Bytes of one element.
    pub element_size: Bytes,
    /// What the rows hold.
    pub spec: TensorSpec,
}

/// The one whole number among the dot-separated parts of a layer's name.
///
/// # Errors
/// [`LayoutError::NoLayerIndex`] when there is none, or more than one.
pub fn layer_index(layer_name: &str) -> Result<i64, LayoutError> {
    let mut numbers = layer_name.split('.').filter_map(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(index), None) => Ok(i64::from(index)),
        _ => Err(LayoutError::NoLayerIndex(layer_name.to_owned())),
    }
}

impl Tensor {
    /// Address of the first byte.
    pub(super) fn address(&self) -> Address {
        Address(self.storage.start.0 + self.offset.0)
    }

    /// Number of dimensions.
    pub(super) fn dims(&self) -> usize {
        self.shape.len()
    }

    /// Bytes between rows.
    pub(super) fn row_stride(&self) -> u64 {
        self.strides[0] * self.element_size.0
    }

    /// Checks that all of the tensor lies in its storage and that no length overflows,
    /// so that plain arithmetic is safe afterwards.
    pub(super) fn check(&self) -> Result<(), LayoutError> {
        let broken =
            |what: String| LayoutError::Tensor { layer_name: self.layer_name.clone(), what };
        if self.shape.is_empty() || self.shape.len() != self.strides.len() {
            return Err(broken(format!(
                "shape {:?} and strides {:?} must have the same, non-zero length",
                self.shape, self.strides
            )));
        }
        if self.element_size.0 == 0 || self.shape.contains(&0) {
            return Err(broken(format!(
                "shape {:?} of {}-byte elements is empty",
                self.shape, self.element_size
            )));
        }
        if self.storage.len.0 == 0 || self.storage.end().is_none() {
            return Err(broken("its storage is empty or passes the last address".to_owned()));
        }
        let needed = self.needed().ok_or_else(|| broken("its size overflows".to_owned()))?;
        if needed > self.storage.len.0 {
            return Err(LayoutError::OutsideStorage {
                layer_name: self.layer_name.clone(),
                needed,
                len: self.storage.len.0,
            });
        }
        Ok(())
    }

    /// Bytes from the storage's start to the tensor's last byte; `None` on overflow.
    fn needed(&self) -> Option<u64> {
        let mut last = 0u64;
        let mut elements = 1u64;
        for (&extent, &stride) in self.shape.iter().zip(&self.strides) {
            last = last.checked_add((extent - 1).checked_mul(stride)?)?;
            // Strides of dimensions of extent 1 are multiplied later, too.
            stride.checked_mul(self.element_size.0)?;
            elements = elements.checked_mul(extent)?;
        }
        elements.checked_mul(self.element_size.0)?;
        last.checked_add(1)?.checked_mul(self.element_size.0)?.checked_add(self.offset.0)
    }

    /// Bytes of the elements of one index of the first `outer` dimensions.
    pub(super) fn inner_bytes(&self, outer: usize) -> u64 {
        self.shape[outer..].iter().product::<u64>() * self.element_size.0
    }

    /// Whether a row is contiguous in row-major order.
    pub(super) fn row_is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.shape.iter().zip(&self.strides).skip(1).rev().all(|(&extent, &stride)| {
            let fits = extent == 1 || stride == expected;
            expected *= extent;
            fits
        })
    }

    /// Whether what lies inside `outer` fixed dimensions fills its bytes without holes or
    /// overlaps, in any order of the dimensions.
    pub(super) fn is_dense_inside(&self, outer: usize) -> bool {
        let mut dims: Vec<(u64, u64)> = self.strides[outer..]
            .iter()
            .copied()
            .zip(self.shape[outer..].iter().copied())
            .filter(|&(_, extent)| extent > 1)
            .collect();
        dims.sort_unstable();
        let mut expected = 1;
        dims.iter().all(|&(stride, extent)| {
            let fits = stride == expected;
            expected *= extent;
            fits
        })
    }

    /// Four dimensions of which the inner two lie packed inside each head, and heads
    /// packed inside the row: heads can be told apart, so the row is no page.
    pub(super) fn heads_are_packed(&self) -> bool {
        self.dims() == 4
            && self.strides[2] == self.shape[3]
            && self.strides[1] == self.shape[2] * self.shape[3]
    }
}
