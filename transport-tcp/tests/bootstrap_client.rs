//! The bootstrap client against our server, stock answers and hostile ones.

mod rig;

use kvbaton_actors::transport::{
    Bootstrap, Directory, RankExtension, RankRegistration, TransportError,
};
use kvbaton_core::ids::EngineId;
use kvbaton_transport_tcp::bootstrap::{
    BootstrapClientConfig, BootstrapConfig, BootstrapServer, HttpBootstrap,
};
use kvbaton_transport_tcp::network::AllowedNetworks;
use rig::{run, within};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn config() -> BootstrapClientConfig {
    BootstrapClientConfig {
        first_pause: Duration::from_millis(1),
        ..BootstrapClientConfig::default()
    }
}

fn client() -> HttpBootstrap {
    HttpBootstrap::new(config())
}

fn rank(engine: &str, tp_rank: u32) -> RankRegistration {
    RankRegistration {
        engine_id: EngineId::from(engine),
        dp_rank: 0,
        tp_rank,
        pp_rank: 0,
        address: format!("tcp://10.0.0.1:{}", 5000 + tp_rank),
        extension: RankExtension {
            revision: 1,
            features: u64::MAX,
            incarnation: (1 << 63) + 1,
            fingerprint: "{\"model\":\"m\"}".to_owned(),
            sizes: (2, 1),
        },
    }
}

/// A server that answers each connection with the next of these, then closes.
async fn canned(answers: Vec<Vec<u8>>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serve = tokio::spawn(async move {
        let mut asked = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let n = stream.read(&mut request).await.unwrap();
            asked.push(String::from_utf8_lossy(&request[..n]).into_owned());
            // A client that has seen enough hangs up.
            let _ = stream.write_all(&answer).await;
        }
        asked
    });
    (url, serve)
}

fn http(status: &str, body: &str) -> Vec<u8> {
    let len = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {len}\r\nconnection: close\r\n\r\n{body}").into()
}

async fn query_of(body: &str) -> Result<Directory, TransportError> {
    let (url, _serve) = canned(vec![http("200 OK", body)]).await;
    within("an answer", client().query(&url)).await
}

#[test]
fn what_is_registered_is_found_and_taken_off() {
    run(async {
        let server = BootstrapServer::start(BootstrapConfig::default()).unwrap();
        let (client, url) = (client(), server.url());
        assert!(client.query(&url).await.unwrap().is_empty());
        client.register(&url, rank("e0", 0)).await.unwrap();
        client.register(&url, rank("e0", 0)).await.unwrap();
        let mut stock = rank("e0", 1);
        stock.extension = RankExtension::default();
        client.register(&format!("{url}/"), stock.clone()).await.unwrap();
        let directory = client.query(&url).await.unwrap();
        let engine = &directory[&0];
        assert_eq!(engine.engine_id.as_str(), "e0");
        assert_eq!(engine.ranks[&0][&0].address, "tcp://10.0.0.1:5000");
        assert_eq!(engine.ranks[&0][&0].extension, Some(rank("e0", 0).extension));
        assert_eq!(engine.ranks[&1][&0].extension, None);
        client.unregister(&url, stock).await.unwrap();
        assert_eq!(client.query(&url).await.unwrap()[&0].ranks.len(), 1);
        client.register(&url, rank("e1", 1)).await.unwrap();
        let directory = client.query(&url).await.unwrap();
        assert_eq!(directory[&0].engine_id.as_str(), "e1");
        assert_eq!(directory[&0].ranks.len(), 1);
    });
}

#[test]
fn w_a_stock_directory_has_no_extensions() {
    run(async {
        let body = r#"{"0":{"engine_id":"e","worker_addr":{"0":{"0":"tcp://h:1","1":"tcp://h:2"}}},
            "3":{"engine_id":"f","worker_addr":{}}}"#;
        let directory = query_of(body).await.unwrap();
        assert_eq!(directory.keys().copied().collect::<Vec<_>>(), [0, 3]);
        assert_eq!(directory[&0].ranks[&0][&1].address, "tcp://h:2");
        assert_eq!(directory[&0].ranks[&0][&1].extension, None);
        assert!(directory[&3].ranks.is_empty());
    });
}

#[test]
fn f63_passing_failures_are_retried_and_the_registration_is_the_same() {
    run(async {
        let answers = vec![
            Vec::new(),
            http("503 Service Unavailable", "busy"),
            b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{".to_vec(),
            http("200 OK", "{\"status\":\"ok\"}"),
        ];
        let (url, serve) = canned(answers).await;
        within("a registration", client().register(&url, rank("e0", 0))).await.unwrap();
        let asked = within("the server", serve).await.unwrap();
        assert_eq!(asked.len(), 4);
        assert!(asked[0].starts_with("POST /register HTTP/1.1\r\n"), "{}", asked[0]);
        assert!(asked.iter().all(|request| *request == asked[0]));
        assert!(asked[0].contains("\"incarnation\":\"0x8000000000000001\""), "{}", asked[0]);
    });
}

#[test]
fn f63_a_server_that_never_comes_is_a_clear_error_in_bounded_time() {
    run(async {
        let probe = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", probe.local_addr().unwrap());
        drop(probe);
        let within_bound = Duration::from_millis(100);
        let config = BootstrapClientConfig {
            register_within: within_bound,
            query_within: within_bound,
            ..config()
        };
        let client = HttpBootstrap::new(config);
        let register = within("an error", client.register(&url, rank("e0", 0))).await;
        let query = within("an error", client.query(&url)).await.map(drop);
        for error in [register.unwrap_err(), query.unwrap_err()] {
            assert!(matches!(error, TransportError::Unreachable { .. }), "{error}");
            let text = error.to_string();
            for part in [&url[..], "failed", "times within", "refused"] {
                assert!(text.contains(part), "{text}");
            }
        }
    });
}

#[test]
fn f63_a_silent_server_costs_one_attempt_at_a_time() {
    run(async {
        let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", mute.local_addr().unwrap());
        let bound = Duration::from_millis(30);
        let config =
            BootstrapClientConfig { attempt_timeout: bound, query_within: 4 * bound, ..config() };
        let error = within("an error", HttpBootstrap::new(config).query(&url)).await.unwrap_err();
        assert!(error.to_string().contains("no answer within"), "{error}");
    });
}

#[test]
fn w_a_stock_server_that_refuses_a_restarted_rank_gets_an_error_with_a_way_out() {
    run(async {
        let detail = "{\"detail\":\"Engine ID mismatch for dp_rank=0: expected a, got b\"}";
        let (url, serve) = canned(vec![http("400 Bad Request", detail)]).await;
        let error = client().register(&url, rank("e0", 0)).await.unwrap_err();
        assert!(matches!(error, TransportError::Refused { .. }), "{error}");
        let text = error.to_string();
        for part in ["Engine ID mismatch", "restart that server", &url] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(within("the server", serve).await.unwrap().len(), 1, "it is not asked again");
    });
}

#[test]
fn z05_only_plain_urls_of_allowed_networks_are_asked() {
    run(async {
        for url in [
            "https://127.0.0.1:1",
            "ftp://127.0.0.1:1",
            "http://127.0.0.1",
            "127.0.0.1:1",
            "",
            "http://127.0.0.1:1/x",
            "http://u:p@127.0.0.1:1",
            "http://127.0.0.1:1?x",
            "file:///x",
        ] {
            let error = client().query(url).await.unwrap_err();
            assert!(matches!(error, TransportError::Unreachable { .. }), "{url}: {error}");
            assert!(error.to_string().contains("http://host:port"), "{error}");
        }
        for url in ["http://8.8.8.8:80", "http://[::ffff:8.8.8.8]:80", "http://169.254.169.254:80"]
        {
            let error = client().query(url).await.unwrap_err();
            assert!(matches!(error, TransportError::AddressNotAllowed { .. }), "{error}");
        }
        let networks = AllowedNetworks::parse(["203.0.113.0/24"]).unwrap();
        let client = HttpBootstrap::new(BootstrapClientConfig { networks, ..config() });
        let error = client.query("http://localhost:80").await.unwrap_err();
        assert!(matches!(error, TransportError::AddressNotAllowed { .. }), "{error}");
    });
}

#[test]
fn z05_a_redirect_is_not_followed() {
    run(async {
        let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = elsewhere.local_addr().unwrap();
        let answer = format!(
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://{target}/query\r\n\
             content-length: 0\r\nconnection: close\r\n\r\n"
        );
        let (url, _serve) = canned(vec![answer.into()]).await;
        let error = client().query(&url).await.unwrap_err();
        assert!(error.to_string().contains("redirect"), "{error}");
        let followed = futures_util::FutureExt::now_or_never(elsewhere.accept());
        assert!(followed.is_none(), "the redirect was followed");
    });
}

#[test]
fn z05_a_host_name_is_resolved_checked_and_named_in_the_request() {
    run(async {
        let (url, serve) = canned(vec![http("200 OK", "{}")]).await;
        let url = url.replace("127.0.0.1", "localhost");
        assert!(client().query(&url).await.unwrap().is_empty());
        let asked = within("the server", serve).await.unwrap();
        let host = url.replace("http://", "host: ");
        assert!(asked[0].to_lowercase().contains(&host), "{}", asked[0]);
    });
}

#[test]
fn z01_a_hostile_directory_is_refused() {
    run(async {
        let engine = |id: &str, tp: &str, addr: &str| {
            format!(r#"{{"0":{{"engine_id":"{id}","worker_addr":{{"{tp}":{{"0":"{addr}"}}}}}}}}"#)
        };
        let cases = [
            "<html>".to_owned(),
            "[]".to_owned(),
            "[".repeat(100_000),
            r#"{"0":7}"#.to_owned(),
            r#"{"-1":{"engine_id":"e","worker_addr":{}}}"#.to_owned(),
            r#"{"4096":{"engine_id":"e","worker_addr":{}}}"#.to_owned(),
            engine("", "0", "tcp://h:1"),
            engine(&"e".repeat(257), "0", "tcp://h:1"),
            engine("e", "99999999999", "tcp://h:1"),
            engine("e", "5000", "tcp://h:1"),
            engine("e", "0", "http://h:1"),
            engine("e", "0", &format!("tcp://{}:1", "h".repeat(300))),
        ];
        for body in cases {
            let error = query_of(&body).await.unwrap_err();
            let start = &body[..body.len().min(80)];
            assert!(matches!(error, TransportError::Malformed { .. }), "{start}: {error}");
        }
    });
}

#[test]
fn z01_an_endless_answer_is_cut() {
    run(async {
        let mut endless = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec();
        endless.resize(6 << 20, b' ');
        let (url, _serve) = canned(vec![endless]).await;
        let error = within("an error", client().query(&url)).await.unwrap_err();
        assert!(matches!(error, TransportError::Malformed { .. }), "{error}");
        assert!(error.to_string().contains("above"), "{error}");
    });
}

#[test]
fn z01_what_no_server_takes_is_not_sent() {
    run(async {
        let mut bad = rank("e0", 0);
        bad.address = "not an address".to_owned();
        let error = client().register("http://127.0.0.1:1", bad).await.unwrap_err();
        assert!(matches!(error, TransportError::Refused { .. }), "{error}");
    });
}
