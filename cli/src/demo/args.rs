//! The demo's options.

use crate::engine::{Model, ModelKind, check_pair};
use crate::transport::TransportKind;
use clap::Args;
use std::str::FromStr;
use std::time::Duration;

/// Exit codes, as `--help` lists them.
const EXIT_CODES: &str = "\
Engines are separate processes on loopback: this program starts itself again for each. \
One process is one engine and holds one node per rank (TP × PP).

Exit codes:
  0  every answer and every byte was right, and all blocks came back
  1  an answer or a byte differed, a request failed, or blocks did not come back
  2  the options make no sense together
  3  the demo could not run: an engine died unexpectedly, hung or did not start";

/// Moves the KV of many requests between prefill and decode engines, and checks every byte.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES, args_override_self = true)]
pub struct DemoArgs {
    /// Prefill engines.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub prefills: u32,
    /// Decode engines.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub decodes: u32,
    /// Tensor-parallel ranks of a prefill engine.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub prefill_tp: u32,
    /// Pipeline stages of a prefill engine.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub prefill_pp: u32,
    /// Tensor-parallel ranks of a decode engine. [default: 1 for dense, else as prefill]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub decode_tp: Option<u32>,
    /// Pipeline stages of a decode engine.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub decode_pp: u32,
    /// What the engines' KV caches look like.
    #[arg(long, value_enum, default_value_t = ModelKind::Dense)]
    pub model: ModelKind,
    /// Tokens in a block. [default: 16; 64 for deepseek146, which has no other]
    #[arg(long)]
    pub block_size: Option<u32>,
    /// Prompt lengths: MIN..MAX (both included), or a list N,N,N taken in turn.
    #[arg(long, default_value = "512..2048")]
    pub prompt_tokens: Lengths,
    /// Requests.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub requests: u32,
    /// Requests at a time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub concurrency: u32,
    /// Tokens that a decode engine generates.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub max_tokens: u32,
    /// Share of requests, in percent, whose prompts begin alike, so that a decode engine has
    /// part of their KV and loads only the rest.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub prefix_hits: u32,
    /// Kill (SIGKILL) and restart engines while requests run, several times.
    #[arg(long)]
    pub chaos: bool,
    /// A decode engine computes a request whose load failed itself; otherwise the router
    /// tries it again elsewhere.
    #[arg(long)]
    pub recompute: bool,
    /// Decides prompts, and whom chaos kills.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How KV travels between the engines.
    #[arg(long, value_enum, default_value_t)]
    pub transport: TransportKind,
    /// Data connections (queue pairs, over RDMA) between two ranks.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub connections: u32,
    /// Seconds that the whole demo may take.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Prompt lengths, in tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lengths {
    /// Any from the first to the second, both included.
    Range(usize, usize),
    /// These, in turn.
    List(Vec<usize>),
}

impl Lengths {
    /// The longest.
    #[must_use]
    pub fn longest(&self) -> usize {
        match self {
            Self::Range(_, most) => *most,
            Self::List(list) => list.iter().copied().max().unwrap_or_default(),
        }
    }
}

impl FromStr for Lengths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = |part: &str| match part.trim().parse() {
            Ok(tokens @ 1..=1_000_000) => Ok(tokens),
            _ => Err(format!("`{part}` is no number of tokens from 1 to 1000000")),
        };
        let Some((least, most)) = text.split_once("..") else {
            return text.split(',').map(one).collect::<Result<_, _>>().map(Self::List);
        };
        let (least, most) = (one(least)?, one(most.trim_start_matches('='))?);
        if least > most {
            return Err(format!("{least} is more than {most}"));
        }
        Ok(Self::Range(least, most))
    }
}

impl DemoArgs {
    /// TP ranks of a decode engine.
    #[must_use]
    pub fn decode_tp(&self) -> u32 {
        let usual = if self.model == ModelKind::Dense { 1 } else { self.prefill_tp };
        self.decode_tp.unwrap_or(usual)
    }

    /// The bound of the whole run.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// The model, once the options fit together.
    ///
    /// # Errors
    /// What does not fit, in the words of whoever refuses it.
    pub fn check(&self) -> Result<Model, String> {
        let model = Model::new(self.model, self.block_size)?;
        let prefill = (self.prefill_tp, self.prefill_pp);
        let decode = (self.decode_tp(), self.decode_pp);
        check_pair(model, prefill, decode).map_err(|error| format!("{error:#}"))?;
        Ok(model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_a_range_or_a_list() {
        assert_eq!("5..9".parse(), Ok(Lengths::Range(5, 9)));
        assert_eq!("7, 100,3".parse(), Ok(Lengths::List(vec![7, 100, 3])));
        assert_eq!("12".parse::<Lengths>().map(|it| it.longest()), Ok(12));
        for wrong in ["", "0", "9..5", "a..b", "1,,2"] {
            assert!(wrong.parse::<Lengths>().is_err(), "{wrong}");
        }
    }
}
