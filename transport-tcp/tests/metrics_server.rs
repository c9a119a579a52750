//! Metrics over HTTP.

use kvbaton_transport_tcp::http::{HttpConfig, MetricsServer};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

fn get(server: &MetricsServer, path: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_are_rendered_for_each_request() {
    let asked = std::sync::atomic::AtomicU32::new(0);
    let render = move || {
        format!("asked_total {}\n", asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1)
    };
    let server = MetricsServer::start(&HttpConfig::default(), Arc::new(render)).unwrap();
    let first = get(&server, "/metrics");
    assert!(first.starts_with("HTTP/1.1 200") && first.contains("text/plain"), "{first}");
    assert!(first.ends_with("asked_total 1\n"), "{first}");
    assert!(get(&server, "/metrics").ends_with("asked_total 2\n"));
    assert!(get(&server, "/health").ends_with("ok"));
    assert!(get(&server, "/else").starts_with("HTTP/1.1 404"));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let first = MetricsServer::start(&HttpConfig::default(), Arc::new(String::new)).unwrap();
    let config = HttpConfig { port: first.address().port(), ..HttpConfig::default() };
    let Err(error) = MetricsServer::start(&config, Arc::new(String::new)) else {
        panic!("the port is taken");
    };
    assert!(error.to_string().contains(&config.port.to_string()), "{error}");
}
