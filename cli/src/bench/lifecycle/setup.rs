//! The options, and the two engines that they describe.

use super::answers::Answers;
use super::traffic::Traffic;
use crate::demo::fleet::Fleet;
use crate::engine::{EngineSpec, Model, ModelKind, Side, check_pair};
use crate::transport::TransportKind;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use std::time::{Duration, Instant};

/// Longest and shortest prompt, in tokens.
const PROMPT: std::ops::RangeInclusive<usize> = 16..=96;
/// Version of the weights at the start.
pub const FIRST_VERSION: u64 = 1;
/// Tokens that D generates.
const MAX_TOKENS: usize = 4;
/// How long a pause that waits lets D pull what P holds, where D may be paused as well.
pub const SHORT_DRAIN: Duration = Duration::from_millis(500);

/// Pause, sleep, wake, abort, reset and update two engines under load, in processes of their
/// own over TCP.
///
/// First the 27 cases of the matrix, each with requests running, under either policy for loads
/// that fail; then cycles of sleep and wake that rotate D, P and both, full and selective.
/// Every answer is compared with a single engine's under the weights that its request lived
/// under, every loaded byte with what the model says, and memory that sleeps is measured: it
/// must be the system's again. "recomputed" are right answers whose KV D computed itself,
/// "retried" attempts that the router followed by another. Exit code 1 when an answer or a
/// byte is wrong, a request failed, or anything did not come back.
#[derive(Debug, Clone, Args)]
pub struct LifecycleArgs {
    /// Requests of each case.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(4..))]
    pub requests: u32,
    /// Requests at a time; cycles go from two thirds of it to 2.7 times it.
    #[arg(long, default_value_t = 96, value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub concurrency: u32,
    /// What D does with a request whose load failed.
    #[arg(long, value_enum, default_value_t = Policy::Both)]
    pub policy: Policy,
    /// Cases whose name contains this.
    #[arg(long, default_value = "")]
    pub only: String,
    /// Cycles of sleep and wake; 0 for none.
    #[arg(long, default_value_t = 200)]
    pub cycles: u32,
    /// TP ranks of P and of D.
    #[arg(long, default_value = "2,1", value_delimiter = ',', num_args = 1)]
    pub tp: Vec<u32>,
    /// Weights of each rank, in MiB.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub weights: u32,
    /// Decides prompts.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Seconds that a case may take; cycles get one more for each.
    #[arg(long, default_value_t = 120)]
    pub timeout: u64,
    /// Print one JSON object a line: each case, then the cycles.
    #[arg(long)]
    pub json: bool,
}

/// What D does with a request whose load failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Policy {
    /// It fails, and the router tries it again.
    Fail,
    /// D computes it itself.
    Recompute,
    /// Each case under both.
    Both,
}

impl Policy {
    /// One or both.
    pub const fn each(self) -> &'static [Self] {
        match self {
            Self::Fail => &[Self::Fail],
            Self::Recompute => &[Self::Recompute],
            Self::Both => &[Self::Fail, Self::Recompute],
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Recompute => "recompute",
            Self::Both => "both",
        }
    }
}

/// What two engines are started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub policy: Policy,
    /// Most requests at a time.
    pub concurrency: usize,
    /// Requests; `None` for no end of them.
    pub requests: Option<usize>,
    /// How long all of it may take.
    pub time: Duration,
    /// How long a pause that waits lets D pull what P holds.
    pub drain: Duration,
}

impl LifecycleArgs {
    fn model(&self) -> Result<Model> {
        let model = Model::new(ModelKind::Dense, None).map_err(anyhow::Error::msg)?;
        let [p, d] = self.tp[..] else { anyhow::bail!("--tp takes two numbers: P's and D's") };
        check_pair(model, (p, 1), (d, 1)).context("--tp")?;
        Ok(model)
    }

    /// The prompts of `count` requests, and their answers.
    pub fn answers(&self, count: usize) -> Result<Answers> {
        Ok(Answers::new(self.model()?, count, PROMPT, MAX_TOKENS, self.seed))
    }

    /// Two engines that are ready, and requests for them.
    pub fn start<'a>(&self, answers: &'a mut Answers, load: &Load) -> Result<Traffic<'a>> {
        let &Load { policy, concurrency, requests, time, drain } = load;
        let model = self.model()?;
        let one = model.shape().blocks_needed(*PROMPT.end(), PROMPT.end() + MAX_TOKENS - 1);
        let spec = |side| {
            // P keeps what was retried and is not yet released beside what runs.
            let times = if side == Side::Prefill { 2 } else { 1 };
            EngineSpec {
                id: String::new(),
                side,
                model,
                tp: self.tp[usize::from(side == Side::Decode)],
                pp: 1,
                blocks: (times * concurrency * one + 1) as u32,
                connections: 2,
                transport: TransportKind::Tcp,
                recompute: policy == Policy::Recompute,
                load_timeout_ms: 60_000,
                hold_timeout_ms: 60_000,
                write_timeout_ms: 30_000,
                drain_ms: drain.as_millis() as u64,
                weight_bytes: (self.weights as usize) << 20,
                weight_version: FIRST_VERSION,
            }
        };
        let specs = vec![spec(Side::Prefill), spec(Side::Decode)];
        let mut fleet = Fleet::of(specs, Instant::now() + time, self.seed)?;
        fleet.wait_ready()?;
        Ok(Traffic::new(fleet, answers, concurrency, requests))
    }
}
