//! The admin port before there is a node: storage may take minutes to open, and the process must
//! not be killed for that.

use std::{
    future::{Future, ready},
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    pin::Pin,
    sync::Arc,
};

use tokio::sync::watch;
use trellis_http::{Actions, AdminPort, View};

struct Nothing;

impl Actions for Nothing {
    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(ready(()))
    }

    fn rebuild(&self) -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>> {
        Box::pin(ready(Ok("moved aside".to_owned())))
    }
}

fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let status = text
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .expect("a status");
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}

/// The admin port of a process without a node, for whatever reason.
fn without_node(quarantined: Option<&str>) -> (tokio::runtime::Runtime, SocketAddr) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let port = AdminPort::bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let address = port.address().expect("bound");
    port.start(View {
        name: "trellis-0".to_owned(),
        members: Arc::default(),
        quarantined: watch::channel(quarantined.map(str::to_owned)).1,
        actions: Arc::new(Nothing),
        registry: Arc::default(),
        figures: Arc::new(|| None),
        runtime: runtime.handle().clone(),
    })
    .expect("a thread");
    (runtime, address)
}

/// A supervisor that kills what is not alive or does not start would start it for ever.
#[test]
fn a_quarantined_process_stays_up_and_says_why_and_what_to_do() {
    let (_runtime, address) = without_node(Some("block 7 is bad"));
    assert_eq!(ask(address, "GET", "/livez").0, 200);
    assert_eq!(ask(address, "GET", "/startupz").0, 200);
    assert_eq!(ask(address, "GET", "/lb").0, 503);
    for (method, path, status) in [
        ("GET", "/readyz", 503),
        ("GET", "/v1/status", 200),
        ("POST", "/v1/snapshot", 503),
    ] {
        let (found, body) = ask(address, method, path);
        assert_eq!(found, status, "{method} {path}: {body}");
        assert!(body.contains("block 7 is bad"), "{method} {path}: {body}");
    }
    assert!(
        ask(address, "GET", "/readyz").1.contains("trellis rebuild"),
        "what to do"
    );
    let (status, body) = ask(address, "POST", "/v1/rebuild");
    assert_eq!(
        (status, body.contains("moved aside")),
        (200, true),
        "{body}"
    );
}

#[test]
fn before_there_is_a_node_it_is_alive_and_neither_started_nor_ready() {
    let (_runtime, address) = without_node(None);
    assert_eq!(ask(address, "GET", "/livez").0, 200);
    let (status, body) = ask(address, "GET", "/readyz?exclude=lag");
    assert_eq!(status, 503);
    assert!(body.contains("storage is being opened"), "{body}");
    assert!(!body.contains("unknown"), "{body}");
    let (_, body) = ask(address, "GET", "/readyz?exclude=lag,foo");
    assert!(body.contains("\"unknown\":[\"foo\"]"), "{body}");
    assert_eq!(ask(address, "GET", "/startupz").0, 503);
    assert_eq!(ask(address, "GET", "/lb"), (503, "down\n".to_owned()));
    assert_eq!(ask(address, "GET", "/metrics"), (200, "# EOF\n".to_owned()));
    for (method, path) in [
        ("GET", "/v1/status"),
        ("GET", "/v1/members"),
        ("POST", "/v1/snapshot"),
        ("POST", "/v1/drain"),
        ("DELETE", "/v1/members/trellis-1"),
    ] {
        let (status, body) = ask(address, method, path);
        assert_eq!(status, 503, "{method} {path}: {body}");
        assert!(body.contains("\"error\""), "{method} {path}: {body}");
    }
    let (status, body) = ask(address, "POST", "/v1/members");
    assert_eq!(status, 415);
    assert!(
        body.contains("\"error\""),
        "also a mistake is told as JSON: {body}"
    );
    assert_eq!(ask(address, "GET", "/nowhere").0, 404);
}
