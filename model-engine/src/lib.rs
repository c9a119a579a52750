//! A small deterministic engine: block pool, prefix cache, scheduler, and a "model"
//! whose KV bytes are a function of the tokens and whose answers are a function of the
//! KV bytes *read back from memory*. A wrong, stale, late or misplaced byte therefore
//! changes the answer, and [`SingleEngine`] says what the answer should have been.
//!
//! It has no threads, clock, sockets or randomness: a driver feeds it inputs, drains its
//! [`Action`]s and connects it to a node. [`ModelEngine`] holds all ranks of one engine;
//! a driver that runs one rank per process uses a [`Scheduler`] and [`Rank`]s instead.

#![forbid(unsafe_code)]

mod action;
mod compare;
mod engine;
mod memory;
mod model;
mod pool;
mod rank;
mod rank_layout;
mod registration;
mod request;
mod scheduler;
mod shape;
mod single;

pub use action::{Action, BlockTable, Outcome, Step};
pub use compare::{Comparison, Difference};
pub use engine::{EngineConfig, ModelEngine};
pub use memory::{KvMemory, VecMemory};
pub use model::{Digest, PrefixChain, RankDigest, Weights, next_token};
pub use pool::{BlockPool, CacheKey, Counts};
pub use rank::Rank;
pub use rank_layout::{PlaceError, RankLayout, RankPlace, StorageShape, TensorShape};
pub use request::{AddError, OnLoadFailure, Request, Role, Transfer};
pub use scheduler::{Gate, Progress, Scheduler, SchedulerConfig, Until};
pub use shape::{
    Dense, Group, Hybrid, Keeps, Layer, Mla, Packing, Shape, Sharding, TensorKind, deepseek146,
};
pub use single::SingleEngine;
