//! The client: registers and asks, over plain HTTP.

use super::json::{Engines, Register, into_directory};
use crate::network::{AllowedNetworks, Endpoint};
use futures_util::future::LocalBoxFuture;
use kvbaton_actors::transport::{Bootstrap, Directory, RankRegistration, TransportError};
use reqwest::{Client, Method, Response, StatusCode};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Largest answer that is read, in bytes.
const MAX_BODY: usize = 4 << 20;
/// Longest part of an error's text that is shown, in characters.
const MAX_DETAIL: usize = 300;

/// How patient a client is, and where servers may live.
#[derive(Debug, Clone)]
pub struct BootstrapClientConfig {
    /// Where servers may live `[Z05]`.
    pub networks: AllowedNetworks,
    /// Bound of one attempt, from resolving the name to the last byte.
    pub attempt_timeout: Duration,
    /// Bound of all attempts to register. Long: the server's process may be busy, or
    /// start after ours `[F63]`.
    pub register_within: Duration,
    /// Bound of all attempts to query; requests wait meanwhile.
    pub query_within: Duration,
    /// Pause before the second attempt; it doubles up to 5 s.
    pub first_pause: Duration,
}

/// Longest pause between two attempts.
pub const MAX_PAUSE: Duration = Duration::from_secs(5);

impl Default for BootstrapClientConfig {
    fn default() -> Self {
        Self {
            networks: AllowedNetworks::default(),
            attempt_timeout: Duration::from_secs(5),
            register_within: Duration::from_secs(120),
            query_within: Duration::from_secs(10),
            first_pause: Duration::from_millis(100),
        }
    }
}

/// Client of bootstrap servers, ours and stock ones. Takes `http://host:port` only,
/// follows no redirect, uses no proxy.
pub struct HttpBootstrap {
    config: Rc<BootstrapClientConfig>,
}

impl HttpBootstrap {
    /// A client; nothing is sent yet.
    #[must_use]
    pub fn new(config: BootstrapClientConfig) -> Self {
        Self { config: Rc::new(config) }
    }

    /// Takes a rank off our own server, at a clean shutdown. Stock servers cannot.
    ///
    /// # Errors
    /// When the server cannot be reached within `query_within`, or refuses.
    pub fn unregister(
        &self,
        url: &str,
        rank: RankRegistration,
    ) -> LocalBoxFuture<'static, Result<(), TransportError>> {
        let call = Call::new(&self.config, url, Method::DELETE, "/register", Some(rank));
        let within = self.config.query_within;
        Box::pin(async move { call.run(within).await.map(drop) })
    }
}

impl Bootstrap for HttpBootstrap {
    fn register(
        &self,
        url: &str,
        rank: RankRegistration,
    ) -> LocalBoxFuture<'static, Result<(), TransportError>> {
        let call = Call::new(&self.config, url, Method::POST, "/register", Some(rank));
        let within = self.config.register_within;
        Box::pin(async move { call.run(within).await.map(drop) })
    }

    fn query(&self, url: &str) -> LocalBoxFuture<'static, Result<Directory, TransportError>> {
        let call = Call::new(&self.config, url, Method::GET, "/query", None);
        let within = self.config.query_within;
        Box::pin(async move {
            let body = call.run(within).await?;
            let engines: Result<Engines, _> = serde_json::from_slice(&body);
            let directory = engines.map_err(|error| error.to_string()).and_then(into_directory);
            directory.map_err(|what| call.malformed(format!("an unusable directory ({what})")))
        })
    }
}

/// One call, tried until it works.
struct Call {
    config: Rc<BootstrapClientConfig>,
    url: String,
    method: Method,
    path: &'static str,
    body: Option<Register>,
}

/// How an attempt failed.
enum Failure {
    /// Another attempt may work.
    Passing(String),
    /// None will.
    Final(TransportError),
}

impl Call {
    fn new(
        config: &Rc<BootstrapClientConfig>,
        url: &str,
        method: Method,
        path: &'static str,
        rank: Option<RankRegistration>,
    ) -> Self {
        let body = rank.map(Register::from);
        Self { config: config.clone(), url: url.to_owned(), method, path, body }
    }

    async fn run(&self, within: Duration) -> Result<Vec<u8>, TransportError> {
        if let Some(Err(what)) = self.body.as_ref().map(Register::check) {
            return Err(self.refused(format!("it would not take this registration ({what})")));
        }
        let url = self.url.strip_suffix('/').unwrap_or(&self.url);
        let server = Endpoint::parse(url, "http").map_err(|what| TransportError::Unreachable {
            peer: self.url.clone(),
            reason: format!("{what}; expected http://host:port"),
        })?;
        let deadline = Instant::now() + within;
        let mut pause = self.config.first_pause;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let left = deadline.saturating_duration_since(Instant::now());
            let bound = self.config.attempt_timeout.min(left);
            let outcome = timeout(bound, self.attempt(&server)).await;
            let reason = match outcome {
                Ok(Ok(body)) => return Ok(body),
                Ok(Err(Failure::Final(error))) => return Err(error),
                Ok(Err(Failure::Passing(reason))) => reason,
                Err(_) => format!("no answer within {bound:?}"),
            };
            if Instant::now() + pause >= deadline {
                return Err(self.exhausted(attempt, within, &reason));
            }
            tracing::warn!(
                url = self.url,
                path = self.path,
                attempt,
                reason,
                "bootstrap server not reached; trying again in {pause:?}"
            );
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    async fn attempt(&self, server: &Endpoint) -> Result<Vec<u8>, Failure> {
        let resolved = self.config.networks.resolve(&server.host, server.port).await;
        let addresses = resolved.map_err(|error| match error {
            TransportError::Unreachable { reason, .. } => Failure::Passing(reason),
            refused => Failure::Final(refused),
        })?;
        let mut failure = Failure::Passing("the name has no address".to_owned());
        for address in addresses {
            match self.ask(server, address).await {
                Err(Failure::Passing(reason)) => failure = Failure::Passing(reason),
                outcome => return outcome,
            }
        }
        Err(failure)
    }

    /// Asks the checked address itself: a name could resolve to another one by now.
    async fn ask(&self, server: &Endpoint, address: SocketAddr) -> Result<Vec<u8>, Failure> {
        let passing = |error: reqwest::Error| Failure::Passing(causes(&error));
        let client = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let client = client.build().map_err(|error| {
            let what = "cannot make an HTTP client".to_owned();
            Failure::Final(TransportError::Local { what, reason: error.to_string() })
        })?;
        let url = format!("http://{address}{}", self.path);
        let mut request =
            client.request(self.method.clone(), url).header("host", server.to_string());
        if let Some(body) = &self.body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(passing)?;
        let status = response.status();
        let body = self.body_of(response).await?;
        if status.is_success() { Ok(body) } else { Err(self.judge(status, &body)) }
    }

    async fn body_of(&self, mut response: Response) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() > MAX_BODY => {
                    let what = format!("an answer above {MAX_BODY} bytes");
                    return Err(Failure::Final(self.malformed(what)));
                }
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => return Ok(body),
                Err(error) => return Err(Failure::Passing(causes(&error))),
            }
        }
    }

    fn judge(&self, status: StatusCode, body: &[u8]) -> Failure {
        let detail = detail(body);
        if status.is_server_error() {
            return Failure::Passing(format!("{status}: {detail}"));
        }
        if status.is_redirection() {
            return Failure::Final(self.malformed(format!("a redirect ({status})")));
        }
        let advice = if status == StatusCode::BAD_REQUEST && self.method == Method::POST {
            "; a stock bootstrap server never lets a restarted rank back in: restart that server \
             (with its engine), or use kvbaton's, which does"
        } else {
            ""
        };
        Failure::Final(self.refused(format!("{status}: {detail}{advice}")))
    }

    fn refused(&self, what: String) -> TransportError {
        TransportError::Refused { peer: self.url.clone(), what }
    }

    fn malformed(&self, what: String) -> TransportError {
        TransportError::Malformed { peer: self.url.clone(), what }
    }

    fn exhausted(&self, attempts: u32, within: Duration, reason: &str) -> TransportError {
        TransportError::Unreachable {
            peer: self.url.clone(),
            reason: format!(
                "{} {} failed {attempts} times within {within:?}, lastly: {reason}",
                self.method, self.path
            ),
        }
    }
}

/// FastAPI's `detail`, or the text itself; short and printable.
fn detail(body: &[u8]) -> String {
    let json: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let text = match json.as_ref().and_then(|json| json.get("detail")) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::from_utf8_lossy(body).into_owned(),
    };
    text.chars().filter(|c| !c.is_control()).take(MAX_DETAIL).collect()
}

/// An error with its causes: reqwest's own text leaves out the one that matters.
fn causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
