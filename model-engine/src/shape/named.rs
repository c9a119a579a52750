//! The named shapes.

use super::{Group, Keeps, Layer, Packing, Shape, Sharding, TensorKind};

/// Attention with KV heads, one block-major tensor per layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dense {
    /// Layers of the model.
    pub layers: u32,
    /// KV heads of the whole model.
    pub kv_heads: u32,
    /// Bytes of K and V of one head for one token; a multiple of 2.
    pub head_bytes: u32,
    /// Tokens in a logical block; a multiple of the kernel blocks.
    pub block_size: u32,
    /// Kernel blocks in a logical block.
    pub kernel_blocks_per_block: u32,
}

impl Dense {
    /// The shape.
    ///
    /// # Panics
    /// When a number is 0 or not the multiple it must be.
    #[must_use]
    pub fn shape(self) -> Shape {
        let layers = (0..self.layers)
            .map(|index| attention(index, 0, Sharding::Heads(self.kv_heads), self.head_bytes));
        Shape {
            name: "dense".into(),
            layers: layers.collect(),
            model_layers: self.layers,
            groups: vec![Group { block_size: self.block_size, keeps: Keeps::All }],
            kernel_blocks_per_block: self.kernel_blocks_per_block,
            total_kv_heads: self.kv_heads,
            replicated_latent: false,
            packing: Packing::Separate,
            element_size: 2,
        }
        .checked()
    }
}

/// Latent attention: all layers are views, page by page, of the rows of one storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mla {
    /// Layers of the model.
    pub layers: u32,
    /// Bytes of the latent of one token; a multiple of 2.
    pub latent_bytes: u32,
    /// Tokens in a block.
    pub block_size: u32,
}

impl Mla {
    /// The shape.
    ///
    /// # Panics
    /// When a number is 0 or not the multiple it must be.
    #[must_use]
    pub fn shape(self) -> Shape {
        let layers = (0..self.layers).map(|index| Layer {
            kind: TensorKind::Latent,
            ..attention(index, 0, Sharding::Replicated, self.latent_bytes)
        });
        Shape {
            name: "mla".into(),
            layers: layers.collect(),
            model_layers: self.layers,
            groups: vec![Group { block_size: self.block_size, keeps: Keeps::All }],
            kernel_blocks_per_block: 1,
            total_kv_heads: 0,
            replicated_latent: true,
            packing: Packing::PackedRow,
            element_size: 2,
        }
        .checked()
    }
}

/// Full attention, sliding-window and state layers, in turn; three groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hybrid {
    /// Layers of the model; layer `i` is full, window or state as `i % 3` says.
    pub layers: u32,
    /// KV heads, and heads of the state, of the whole model.
    pub kv_heads: u32,
    /// Bytes of K and V of one head for one token; a multiple of 2.
    pub head_bytes: u32,
    /// Tokens in a logical block of the attention groups.
    pub block_size: u32,
    /// Kernel blocks in a logical block of the attention groups.
    pub kernel_blocks_per_block: u32,
    /// Tokens that a window layer looks back.
    pub window: u32,
    /// Bytes of one head's state; a multiple of 2.
    pub state_bytes: u32,
    /// Tokens between two kept states.
    pub state_block_size: u32,
}

impl Hybrid {
    /// The shape.
    ///
    /// # Panics
    /// When a number is 0 or not the multiple it must be, or there are fewer than 3 layers.
    #[must_use]
    pub fn shape(self) -> Shape {
        assert!(self.layers >= 3, "a hybrid model has a layer of each of its 3 groups");
        let sharding = Sharding::Heads(self.kv_heads);
        let layers = (0..self.layers).map(|index| match index % 3 {
            2 => Layer {
                name: format!("model.layers.{index}.mixer").into(),
                kind: TensorKind::State,
                ..attention(index, 2, sharding, self.state_bytes)
            },
            group => attention(index, group as usize, sharding, self.head_bytes),
        });
        Shape {
            name: "hybrid".into(),
            layers: layers.collect(),
            model_layers: self.layers,
            groups: vec![
                Group { block_size: self.block_size, keeps: Keeps::All },
                Group { block_size: self.block_size, keeps: Keeps::Window(self.window) },
                Group { block_size: self.state_block_size, keeps: Keeps::States },
            ],
            kernel_blocks_per_block: self.kernel_blocks_per_block,
            total_kv_heads: self.kv_heads,
            replicated_latent: false,
            packing: Packing::Separate,
            element_size: 2,
        }
        .checked()
    }
}

/// The large published shape: 42 layers, 146 tensors in 4 groups (sliding-window latent,
/// latent, indexer keys on every other layer, compressor state), 64 tokens a block.
#[must_use]
pub fn deepseek146() -> Shape {
    const LAYERS: u32 = 42;
    const LATENT: u32 = 585;
    const INDEXER_KEY: u32 = 132;
    const COMPRESSOR_STATE: u32 = 16_384;
    let mut layers = Vec::new();
    for index in 0..LAYERS {
        let mut push = |part: &str, group, kind, unit| {
            layers.push(Layer {
                name: format!("model.layers.{index}.attn.{part}").into(),
                index,
                group,
                kind,
                sharding: Sharding::Replicated,
                unit,
            });
        };
        push("swa_cache", 0, TensorKind::Attention, LATENT);
        push("mla_attn", 1, TensorKind::Attention, LATENT);
        if index % 2 == 0 {
            push("indexer.k_cache", 2, TensorKind::Attention, INDEXER_KEY);
        }
        if index + 1 < LAYERS {
            push("compressor.state_cache", 3, TensorKind::State, COMPRESSOR_STATE);
        }
    }
    let group = |keeps| Group { block_size: 64, keeps };
    Shape {
        name: "deepseek146".into(),
        layers,
        model_layers: LAYERS,
        groups: vec![
            group(Keeps::Window(128)),
            group(Keeps::All),
            group(Keeps::All),
            group(Keeps::States),
        ],
        kernel_blocks_per_block: 1,
        total_kv_heads: 0,
        replicated_latent: true,
        packing: Packing::Separate,
        element_size: 1,
    }
    .checked()
}

fn attention(index: u32, group: usize, sharding: Sharding, unit: u32) -> Layer {
    Layer {
        name: format!("model.layers.{index}.self_attn.attn").into(),
        index,
        group,
        kind: TensorKind::Attention,
        sharding,
        unit,
    }
}

impl Shape {
    /// Itself, once its numbers fit together.
    fn checked(self) -> Self {
        assert!(!self.layers.is_empty(), "{}: a model has layers", self.name);
        assert!(self.kernel_blocks_per_block > 0, "{}: kernel blocks per block is 0", self.name);
        for layer in &self.layers {
            assert!(
                layer.unit > 0 && layer.unit % self.element_size == 0,
                "{}: {} bytes are no whole number of {}-byte elements",
                layer.name,
                layer.unit,
                self.element_size
            );
            assert_ne!(layer.sharding, Sharding::Heads(0), "{}: has no heads", layer.name);
        }
        for (index, group) in self.groups.iter().enumerate() {
            assert!(
                group.block_size > 0 && group.block_size % self.rows_per_block(index) == 0,
                "{}: group {index}'s blocks of {} tokens do not divide into {} kernel blocks",
                self.name,
                group.block_size,
                self.rows_per_block(index)
            );
            assert_ne!(group.keeps, Keeps::Window(0), "{}: group {index} has no window", self.name);
        }
        self
    }
}
