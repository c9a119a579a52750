//! One P and one D that do one thing at a time.

use crate::demo::fleet::Fleet;
use crate::demo::message::{FromEngine, ToEngine};
use crate::engine::{EngineSpec, Model, ModelKind, Notice, Operate, Side, Source, Submit};
use crate::transport::TransportKind;
use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// P's place in the fleet.
pub const P: usize = 0;
/// D's.
pub const D: usize = 1;
/// Longest wait for one thing.
const BOUND: Duration = Duration::from_secs(60);

/// The two engines.
pub struct Pair {
    pub fleet: Fleet,
    tokens: usize,
    next: u32,
}

impl Pair {
    /// Two engines that are ready, for requests of so many tokens.
    pub fn start(tokens: usize, time: Duration) -> Result<Self> {
        let model = Model::new(ModelKind::Dense, None).map_err(anyhow::Error::msg)?;
        let blocks = 4 * model.shape().blocks_needed(tokens, tokens + 1) as u32 + 1;
        let spec = |side| EngineSpec {
            id: String::new(),
            side,
            model,
            tp: 1,
            pp: 1,
            blocks,
            connections: 2,
            transport: TransportKind::Tcp,
            recompute: false,
            load_timeout_ms: 60_000,
            hold_timeout_ms: 60_000,
            write_timeout_ms: 30_000,
            drain_ms: 1000,
            weight_bytes: 1 << 20,
            weight_version: 0,
        };
        let specs = vec![spec(Side::Prefill), spec(Side::Decode)];
        let mut fleet = Fleet::of(specs, Instant::now() + time, 1)?;
        fleet.wait_ready()?;
        Ok(Self { fleet, tokens, next: 0 })
    }

    /// A new request's number.
    pub const fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// Waits until something has been said that `wanted` takes.
    pub fn wait<T>(
        &mut self,
        what: &str,
        mut wanted: impl FnMut(usize, &FromEngine) -> Option<T>,
    ) -> Result<T> {
        let until = Instant::now() + BOUND;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let Some((slot, said)) = self.fleet.hear(left)? else { continue };
            if let FromEngine::Notice(Notice::Compared { different: 1.., request, first, .. }) =
                &said
            {
                bail!("loaded bytes of {request} differ: {}", first.as_deref().unwrap_or("?"));
            }
            if let Some(found) = wanted(slot, &said) {
                return Ok(found);
            }
        }
        bail!("waited in vain for {what}")
    }

    /// Asks one of them for a request; D finds its KV on P.
    pub fn submit(&mut self, slot: usize, number: u32) {
        let source = self.fleet.source(P).filter(|_| slot == D);
        let submit = Submit {
            request: format!("{}{number}", ["p", "d"][slot]),
            transfer: format!("t{number}"),
            // Nothing is found in a prefix cache: no two begin alike.
            prompt: (0..self.tokens as u32).map(|at| at ^ number.wrapping_mul(7919)).collect(),
            max_tokens: 1,
            source: source.map(|(engine, bootstrap)| Source { engine, bootstrap }),
        };
        self.fleet.tell(slot, &ToEngine::Submit(submit));
    }

    /// P prefills a request and holds it.
    pub fn hold(&mut self, number: u32) -> Result<()> {
        self.submit(P, number);
        self.wait("P's hold", |_, said| {
            matches!(said, FromEngine::Notice(Notice::Held { .. })).then_some(())
        })
    }

    /// D loads a request that P holds: how long that took, as D sees it. Once both engines
    /// have done with it.
    pub fn load(&mut self, number: u32) -> Result<Duration> {
        self.submit(D, number);
        let (mut took, mut answered, mut sent) = (None, false, false);
        self.wait("a load", |slot, said| {
            match said {
                FromEngine::Notice(Notice::Loaded { started, at, .. }) => {
                    took = Some(Duration::from_nanos(at - started));
                }
                FromEngine::Notice(Notice::Answer { .. }) if slot == D => answered = true,
                FromEngine::Notice(Notice::SendEnded { .. }) => sent = true,
                _ => {}
            }
            (answered && sent).then_some(())
        })?;
        took.map_or_else(|| bail!("the load failed"), Ok)
    }

    /// Operates one of them.
    pub fn operate(&mut self, slot: usize, operate: Operate) -> Result<()> {
        self.fleet.tell(slot, &ToEngine::Operate { id: 0, operate });
        let error = self.wait("an operation", |_, said| match said {
            FromEngine::Operated { ended, .. } => Some(ended.error.clone()),
            _ => None,
        })?;
        error.map_or(Ok(()), |error| bail!(error))
    }
}
