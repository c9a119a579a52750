//! The models of simulated worlds: as small as they can be and still have every kind of row.

use crate::plan::ModelPlan;
use kvbaton_model_engine::{Dense, Hybrid, Mla, Shape, Weights};
use std::sync::Arc;

/// The weights of one version: every engine of a world runs the same model.
#[must_use]
pub const fn weights(version: u64) -> Weights {
    Weights { model: 1, version }
}

/// The shape of a model.
#[must_use]
pub fn shape(model: ModelPlan) -> Arc<Shape> {
    Arc::new(match model {
        ModelPlan::Dense => Dense {
            layers: 4,
            kv_heads: 4,
            head_bytes: 4,
            block_size: 4,
            kernel_blocks_per_block: 2,
        }
        .shape(),
        ModelPlan::Mla => Mla { layers: 4, latent_bytes: 8, block_size: 4 }.shape(),
        ModelPlan::Hybrid => Hybrid {
            layers: 6,
            kv_heads: 4,
            head_bytes: 4,
            block_size: 4,
            kernel_blocks_per_block: 2,
            window: 8,
            state_bytes: 16,
            state_block_size: 8,
        }
        .shape(),
    })
}
