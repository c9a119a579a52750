//! The scheduler's half: core's [`Scheduling`] behind the engine's hooks.

use super::orders;
use crate::blocks::{Blocks, lists};
use crate::errors::KvBatonError;
use crate::node::seconds;
use kvbaton_core::connector::{
    ConnectorGroup, Ending, HoldId, Intent, Matched, Parameters, Scheduling, SchedulingConfig,
};
use kvbaton_core::ids::RequestId;
use kvbaton_core::time::Timestamp;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Decides what each request loads, sends and gives back. No call waits.
#[pyclass(frozen, module = "kvbaton._kvbaton")]
pub struct SchedulerSide {
    machine: Mutex<Scheduling>,
    sends: bool,
    loads: bool,
    start: Instant,
}

fn parameters(dict: Option<&Bound<'_, PyDict>>) -> PyResult<Parameters> {
    let Some(dict) = dict else { return Ok(Parameters::default()) };
    let flag = |key| -> PyResult<bool> {
        dict.get_item(key)?.map_or(Ok(false), |value| value.is_truthy())
    };
    // What is no string cannot name anything: it counts as missing.
    let text = |key| -> PyResult<Option<String>> {
        Ok(dict.get_item(key)?.and_then(|value| value.extract().ok()))
    };
    Ok(Parameters {
        remote_prefill: flag("do_remote_prefill")?,
        remote_decode: flag("do_remote_decode")?,
        transfer: text("transfer_id")?,
        engine: text("remote_engine_id")?,
        bootstrap: text("remote_bootstrap_addr")?,
    })
}

#[pymethods]
impl SchedulerSide {
    /// `groups` are (tokens per block, sliding window or 0) of each KV cache group.
    #[new]
    #[pyo3(signature = (groups, *, recompute_last, workers, sends, loads, pause_drain))]
    fn new(
        groups: Vec<(u32, u32)>,
        recompute_last: bool,
        workers: usize,
        sends: bool,
        loads: bool,
        pause_drain: f64,
    ) -> PyResult<Self> {
        let group = |(tokens, window)| ConnectorGroup::window(window, tokens);
        let config = SchedulingConfig {
            groups: groups.into_iter().map(group).collect(),
            recompute_last,
            workers,
            pause_drain: seconds(pause_drain)?,
        };
        let machine = Mutex::new(Scheduling::new(config));
        Ok(Self { machine, sends, loads, start: Instant::now() })
    }

    /// A request came. Whether P must leave its last prompt token to D, and why its
    /// parameters cannot be followed.
    fn added(
        &self,
        request: String,
        params: Option<&Bound<'_, PyDict>>,
        prompt_tokens: u32,
    ) -> PyResult<(bool, Option<String>)> {
        match Intent::read(&parameters(params)?, self.sends, self.loads) {
            Ok(None) => Ok((false, None)),
            Ok(Some(intent)) => {
                Ok((self.lock().added(request.into(), intent, prompt_tokens), None))
            }
            Err(error) => Ok((false, Some(error.to_string()))),
        }
    }

    /// Tokens to load beyond `computed`; None: ask again later.
    fn matched(&self, request: &str, prompt_tokens: u32, computed: u32) -> Option<u32> {
        match self.lock().matched(&request.into(), prompt_tokens, computed) {
            Matched::Nothing => Some(0),
            Matched::Later => None,
            Matched::Tokens(tokens) => Some(tokens),
        }
    }

    /// Whether the request takes part in a transfer.
    fn knows(&self, request: &str) -> bool {
        self.lock().knows(&request.into())
    }

    /// A request got blocks; `external` tokens are to be loaded into them.
    fn allocated(&self, request: &str, external: u32, blocks: Blocks) {
        self.lock().allocated(&request.into(), external, &lists(&blocks));
    }

    /// A request is over. A number: its blocks must stay until `given_back` names it.
    fn finished(
        &self,
        request: &str,
        complete: bool,
        computed: u32,
        blocks: Blocks,
    ) -> Option<u64> {
        let ending = if complete { Ending::Complete } else { Ending::Aborted };
        let hold = self.lock().finished(&request.into(), ending, computed, &lists(&blocks));
        hold.map(|it| it.0)
    }

    /// Every worker has ended these loads.
    fn loads_ended(&self, requests: Vec<String>) {
        let requests: Vec<RequestId> = requests.into_iter().map(Into::into).collect();
        self.lock().loads_ended(&requests);
    }

    /// Holds, and by how many workers more they were given back; those that are free now.
    fn given_back(&self, answers: Vec<(u64, usize)>) -> Vec<u64> {
        let answers = answers.into_iter().map(|(hold, workers)| (HoldId(hold), workers));
        self.lock().given_back(answers).into_iter().map(|it| it.0).collect()
    }

    /// Orders for the workers' next step.
    fn orders<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let orders = self.lock().take_orders();
        let bytes = orders::encode(orders).map_err(|it| KvBatonError::new_err(it.to_string()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Whether the engine must go on stepping without a request.
    fn must_step(&self, paused: bool) -> bool {
        let nanos = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.lock().must_step(paused, Timestamp(nanos))
    }

    /// Every hold's blocks are wanted back.
    fn release_all(&self) {
        self.lock().release_all();
    }

    /// Number of holds.
    #[getter]
    fn holding(&self) -> usize {
        self.lock().holding()
    }
}

impl SchedulerSide {
    fn lock(&self) -> MutexGuard<'_, Scheduling> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
