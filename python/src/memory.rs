//! KV memory as Python describes it.

use crate::errors::{self, LayoutError};
use kvbaton_actors::node::registration::Memory;
use kvbaton_core::fingerprint::Fingerprint;
use kvbaton_core::ids::{Address, Bytes};
use kvbaton_core::layout::{Layout, Tensor as Described, TensorKind, TensorSpec};
use kvbaton_core::plan::{GroupSpec, Heads, LocalLayout};
use kvbaton_core::region::{GroupKind, MemoryRange};
use kvbaton_core::topology::Topology;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use std::sync::Arc;

/// A KV cache tensor: a strided view into memory that the caller owns.
///
/// The first dimension counts blocks. `Tensor(name, kv)` takes anything with a writable
/// buffer (a NumPy array, a memoryview, shared memory) or a torch tensor;
/// `Tensor.at(...)` takes plain addresses.
#[pyclass(frozen, module = "kvbaton")]
#[derive(Clone)]
pub struct Tensor {
    pub described: Described,
    /// Keeps the memory alive.
    owner: Option<Arc<Owner>>,
    /// Writes are refused by the memory itself.
    pub readonly: bool,
}

/// What the memory belongs to; kept until it is unregistered.
pub enum Owner {
    /// An exported buffer: its owner cannot resize or free it meanwhile.
    Buffer(#[allow(dead_code, reason = "held, not read")] PyUntypedBuffer),
    /// A torch tensor.
    Object(#[allow(dead_code, reason = "held, not read")] Py<PyAny>),
}

fn kind_of(kind: &str) -> PyResult<TensorKind> {
    match kind {
        "attention" => Ok(TensorKind::Attention),
        "latent" => Ok(TensorKind::Latent),
        "state" => Ok(TensorKind::State),
        "circular" => Ok(TensorKind::CircularBuffer),
        other => Err(LayoutError::new_err(format!(
            "kind {other:?} is none of \"attention\", \"latent\", \"state\", \"circular\""
        ))),
    }
}

#[pymethods]
impl Tensor {
    #[new]
    #[pyo3(signature = (layer_name, kv, *, group = 0, kind = "attention", page_size = None))]
    fn new(
        layer_name: String,
        kv: &Bound<'_, PyAny>,
        group: u32,
        kind: &str,
        page_size: Option<u64>,
    ) -> PyResult<Self> {
        let kind = kind_of(kind)?;
        let view = if kv.hasattr("untyped_storage")? { torch(kv)? } else { buffer(kv)? };
        let View { storage, offset, shape, strides, element_size, owner, readonly } = view;
        let row: u64 = shape.iter().skip(1).product::<u64>() * element_size;
        let spec = TensorSpec { kind, page_size: Bytes(page_size.unwrap_or(row)) };
        let described = Described {
            layer_name,
            group,
            storage,
            offset: Bytes(offset),
            shape,
            strides,
            element_size: Bytes(element_size),
            spec,
        };
        Ok(Self { described, owner: Some(Arc::new(owner)), readonly })
    }

    /// A tensor at an address. Strides count elements; without them it is contiguous.
    /// `storage` is the allocation around it, as (address, bytes); without it the tensor
    /// is all of it. `page_size` is the bytes of one block's page, padding included.
    ///
    /// The memory must stay mapped until it is unregistered or the node is closed.
    #[staticmethod]
    #[pyo3(signature = (layer_name, address, shape, *, strides = None, element_size = 1,
                        storage = None, group = 0, kind = "attention", page_size = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn at(
        layer_name: String,
        address: u64,
        shape: Vec<u64>,
        strides: Option<Vec<u64>>,
        element_size: u64,
        storage: Option<(u64, u64)>,
        group: u32,
        kind: &str,
        page_size: Option<u64>,
    ) -> PyResult<Self> {
        let kind = kind_of(kind)?;
        let strides = strides.unwrap_or_else(|| contiguous(&shape));
        let bytes = |from: usize| {
            let count =
                shape[from.min(shape.len())..].iter().try_fold(1u64, |a, &b| a.checked_mul(b));
            count.and_then(|it| it.checked_mul(element_size)).unwrap_or(u64::MAX)
        };
        let (start, len) = storage.unwrap_or((address, bytes(0)));
        let offset = address.checked_sub(start).ok_or_else(|| {
            LayoutError::new_err(format!(
                "tensor {layer_name}: address {address:#x} lies before its storage at {start:#x}"
            ))
        })?;
        let spec = TensorSpec { kind, page_size: Bytes(page_size.unwrap_or_else(|| bytes(1))) };
        let storage = MemoryRange { start: Address(start), len: Bytes(len) };
        let (offset, element_size) = (Bytes(offset), Bytes(element_size));
        let described =
            Described { layer_name, group, storage, offset, shape, strides, element_size, spec };
        Ok(Self { described, owner: None, readonly: false })
    }

    fn __repr__(&self) -> String {
        let Described { layer_name, group, shape, storage, .. } = &self.described;
        let address = storage.start.0 + self.described.offset.0;
        format!("Tensor({layer_name:?}, shape={shape:?}, group={group}, address={address:#x})")
    }
}

impl Tensor {
    pub fn owner(&self) -> Option<Arc<Owner>> {
        self.owner.clone()
    }
}

struct View {
    storage: MemoryRange,
    offset: u64,
    shape: Vec<u64>,
    strides: Vec<u64>,
    element_size: u64,
    owner: Owner,
    readonly: bool,
}

fn contiguous(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1; shape.len()];
    for index in (1..shape.len()).rev() {
        strides[index - 1] = strides[index] * shape[index];
    }
    strides
}

fn buffer(kv: &Bound<'_, PyAny>) -> PyResult<View> {
    let buffer = PyUntypedBuffer::get(kv)?;
    let element_size = buffer.item_size().max(1) as u64;
    let shape: Vec<u64> = buffer.shape().iter().map(|&it| it as u64).collect();
    let mut strides = Vec::new();
    for &stride in buffer.strides() {
        match u64::try_from(stride) {
            Ok(stride) if stride.is_multiple_of(element_size) => {
                strides.push(stride / element_size)
            }
            _ => {
                return Err(LayoutError::new_err(format!(
                    "a stride of {stride} bytes is no positive multiple of {element_size}-byte \
                     elements; give an array without reversed or odd axes"
                )));
            }
        }
    }
    let reach: u64 = shape.iter().zip(&strides).map(|(&n, &by)| n.saturating_sub(1) * by).sum();
    let (address, len) = (buffer.buf_ptr() as u64, (reach + 1) * element_size);
    let view = MemoryRange { start: Address(address), len: Bytes(len) };
    let storage = whole(kv)?.filter(|it| it.contains(view.start, view.len)).unwrap_or(view);
    let (readonly, owner) = (buffer.readonly(), Owner::Buffer(buffer));
    let offset = address - storage.start.0;
    Ok(View { storage, offset, shape, strides, element_size, owner, readonly })
}

/// The array that a NumPy view looks into: views of one array share their storage.
fn whole(kv: &Bound<'_, PyAny>) -> PyResult<Option<MemoryRange>> {
    let mut root = kv.clone();
    while let Some(base) = root.getattr_opt("base")? {
        if !base.hasattr("__array_interface__")? {
            break;
        }
        root = base;
    }
    if !root.hasattr("__array_interface__")? {
        return Ok(None);
    }
    let Ok(buffer) = PyUntypedBuffer::get(&root) else { return Ok(None) };
    let (start, len) = (Address(buffer.buf_ptr() as u64), Bytes(buffer.len_bytes() as u64));
    Ok(buffer.is_c_contiguous().then_some(MemoryRange { start, len }))
}

fn torch(kv: &Bound<'_, PyAny>) -> PyResult<View> {
    let storage = kv.call_method0("untyped_storage")?;
    let start: u64 = storage.call_method0("data_ptr")?.extract()?;
    let len: u64 = storage.call_method0("nbytes")?.extract()?;
    let address: u64 = kv.call_method0("data_ptr")?.extract()?;
    let shape: Vec<u64> = kv.getattr("shape")?.extract()?;
    let strides: Vec<u64> = kv.call_method0("stride")?.extract()?;
    let element_size: u64 = kv.call_method0("element_size")?.extract()?;
    Ok(View {
        storage: MemoryRange { start: Address(start), len: Bytes(len) },
        offset: address.saturating_sub(start),
        shape,
        strides,
        element_size,
        owner: Owner::Object(kv.clone().unbind()),
        readonly: false,
    })
}

/// One KV cache group.
///
/// `kind` is "attention" or "state" (recurrent state, never split); `kv_heads` the KV heads
/// of the whole model, 0 when not known (equal TP only), and `replicated=True` says that
/// every rank holds the same (latent KV). `block_tokens` are tokens per block, 0 when not
/// known.
#[pyclass(frozen, module = "kvbaton")]
#[derive(Clone, Copy)]
pub struct Group(pub GroupSpec);

#[pymethods]
impl Group {
    #[new]
    #[pyo3(signature = (kind = "attention", *, kv_heads = 0, replicated = false, block_tokens = 0))]
    fn new(kind: &str, kv_heads: u32, replicated: bool, block_tokens: u32) -> PyResult<Self> {
        let kind = match kind {
            "attention" => GroupKind::Attention,
            "state" => GroupKind::State,
            other => {
                let what = format!("kind {other:?} is none of \"attention\", \"state\"");
                return Err(LayoutError::new_err(what));
            }
        };
        let heads = if replicated { Heads::Replicated } else { Heads::Split(kv_heads) };
        Ok(Self(GroupSpec { kind, heads, block_tokens }))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// What must be equal on both sides for KV bytes to mean the same.
pub struct Names {
    pub model: String,
    pub dtype: String,
    pub total_kv_heads: u32,
}

/// Puts a registration together.
pub fn memory(
    tensors: &[Tensor],
    blocks: u64,
    kernel_blocks_per_block: u32,
    groups: Vec<GroupSpec>,
    padded_pages: bool,
    names: Option<Names>,
    topology: Topology,
) -> PyResult<Memory> {
    let described: Vec<Described> = tensors.iter().map(|it| it.described.clone()).collect();
    let layout = Layout::build(&described, blocks, kernel_blocks_per_block);
    let layout = layout.map_err(errors::layout)?;
    let fingerprint = names.map(|names| Fingerprint {
        model: names.model,
        dtype: names.dtype,
        block_size: groups.iter().map(|it| it.block_tokens).collect(),
        total_kv_heads: names.total_kv_heads,
        groups: groups.iter().map(|it| it.kind).collect(),
    });
    let mut local = LocalLayout::new(topology, layout, groups, kernel_blocks_per_block);
    local.padded_pages = padded_pages;
    local.fingerprint = fingerprint;
    Memory::new(local).map_err(errors::layout)
}
