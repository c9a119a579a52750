//! What a router wants of a request.

use crate::ids::{EngineId, TransferId};
use std::sync::Arc;

/// A request's transfer parameters, as they came; nothing in them is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parameters {
    /// KV comes from another engine.
    pub remote_prefill: bool,
    /// KV goes to another engine.
    pub remote_decode: bool,
    /// Names the transfer for both sides.
    pub transfer: Option<String>,
    /// The engine that KV comes from.
    pub engine: Option<String>,
    /// Where that engine is listed.
    pub bootstrap: Option<String>,
}

/// Where KV comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    /// P's engine.
    pub engine: EngineId,
    /// Where its ranks are listed (`http://host:port`).
    pub bootstrap: Arc<str>,
}

/// What a router wants of a request: to load KV, to send it, or both in this order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Intent {
    /// Names the transfer for both sides.
    pub transfer: TransferId,
    /// Where KV comes from, if it does.
    pub source: Option<Source>,
    /// Whether KV goes to another engine.
    pub send: bool,
}

/// Parameters that cannot be followed; the request is computed here as any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IntentError {
    /// A key is missing or empty.
    #[error("`{0}` is missing; the router must send it with each request")]
    Missing(&'static str),
    /// An engine that only sends was asked to load.
    #[error("`do_remote_prefill` reached a kv_producer; send it to a decode, or set kv_both")]
    CannotLoad,
    /// An engine that only loads was asked to send.
    #[error("`do_remote_decode` reached a kv_consumer; send it to a prefill, or set kv_both")]
    CannotSend,
}

/// A key's value, unless it is missing or empty.
fn given<'a>(value: &'a Option<String>, key: &'static str) -> Result<&'a str, IntentError> {
    value.as_deref().filter(|it| !it.is_empty()).ok_or(IntentError::Missing(key))
}

impl Intent {
    /// Reads a request's parameters; `None` when they ask for nothing. `sends` and `loads`
    /// are the engine's roles.
    ///
    /// # Errors
    /// A sentence for the operator that names the key.
    pub fn read(
        parameters: &Parameters,
        sends: bool,
        loads: bool,
    ) -> Result<Option<Self>, IntentError> {
        let Parameters { remote_prefill, remote_decode, transfer, engine, bootstrap } = parameters;
        if !remote_prefill && !remote_decode {
            return Ok(None);
        }
        if *remote_prefill && !loads {
            return Err(IntentError::CannotLoad);
        }
        if *remote_decode && !sends {
            return Err(IntentError::CannotSend);
        }
        let transfer = TransferId::from(given(transfer, "transfer_id")?);
        let source = match remote_prefill {
            false => None,
            true => Some(Source {
                engine: given(engine, "remote_engine_id")?.into(),
                bootstrap: given(bootstrap, "remote_bootstrap_addr")?.into(),
            }),
        };
        Ok(Some(Self { transfer, source, send: *remote_decode }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Parameters {
        Parameters {
            remote_prefill: true,
            remote_decode: false,
            transfer: Some("t".into()),
            engine: Some("e".into()),
            bootstrap: Some("http://h:1".into()),
        }
    }

    #[test]
    fn a_key_that_is_missing_or_empty_is_named() {
        let clear: [(fn(&mut Parameters), _); 3] = [
            (|it| it.transfer = None, "transfer_id"),
            (|it| it.engine = Some(String::new()), "remote_engine_id"),
            (|it| it.bootstrap = None, "remote_bootstrap_addr"),
        ];
        for (change, key) in clear {
            let mut parameters = whole();
            change(&mut parameters);
            assert_eq!(Intent::read(&parameters, true, true), Err(IntentError::Missing(key)));
        }
        // A request that is only sent needs no source.
        let send =
            Parameters { remote_decode: true, transfer: Some("t".into()), ..Parameters::default() };
        let intent = Intent::read(&send, true, false).expect("whole").expect("something");
        assert_eq!((intent.source, intent.send), (None, true));
    }

    #[test]
    fn an_engine_is_not_asked_for_what_it_is_not_there_for() {
        assert_eq!(Intent::read(&whole(), true, false), Err(IntentError::CannotLoad));
        let send = Parameters { remote_prefill: false, remote_decode: true, ..whole() };
        assert_eq!(Intent::read(&send, false, true), Err(IntentError::CannotSend));
        assert_eq!(Intent::read(&Parameters::default(), false, false), Ok(None));
    }
}
