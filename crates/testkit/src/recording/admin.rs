use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use trellis_checker::history::Record;
use trellis_types::Timestamp;

use super::Shared;

/// Between two looks at a node.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a look may take.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// A status holds a few kilobytes.
const STATUS_BYTES_MAX: u64 = 1024 * 1024;

/// Where a node stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    pub(super) applied: u64,
    pub(super) time_ms: Option<u64>,
    pub(super) digest: Option<String>,
    pub(super) digest_at: Option<u64>,
}

/// Asks a node's admin port where it stands.
pub(super) fn standing(address: SocketAddr) -> io::Result<Standing> {
    let mut socket = TcpStream::connect_timeout(&address, LOOK_MAX)?;
    socket.set_read_timeout(Some(LOOK_MAX))?;
    socket.set_write_timeout(Some(LOOK_MAX))?;
    socket.write_all(
        format!("GET /v1/status HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
            .as_bytes(),
    )?;
    let mut text = String::new();
    let until = Instant::now() + LOOK_MAX;
    let mut bytes = [0; 8 * 1024];
    let mut input = socket.take(STATUS_BYTES_MAX);
    loop {
        let count = input.read(&mut bytes)?;
        if count == 0 {
            break;
        }
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        if Instant::now() > until {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let line = head.lines().next().unwrap_or_default();
    if line.split(' ').nth(1) != Some("200") {
        return Err(io::Error::other(format!(
            "/v1/status was answered {line:?}"
        )));
    }
    let status: serde_json::Value = serde_json::from_str(body)?;
    Ok(Standing {
        applied: status["applied"].as_u64().unwrap_or_default(),
        time_ms: status["time_ms"].as_u64(),
        digest: status["digest"]["value"].as_str().map(str::to_owned),
        digest_at: status["digest"]["index"].as_u64(),
    })
}

/// Records where a node stands, again and again.
pub(super) fn sample(shared: &Shared, node: usize) {
    let node = &shared.nodes[node];
    let Some(admin) = node.admin else { return };
    while !shared.is_over() {
        if let Ok(standing) = standing(admin) {
            shared.recorder.write(&Record::Sample {
                t: shared.now(),
                node: node.name.clone(),
                applied: standing.applied,
                now: standing.time_ms.map(Timestamp),
                digest: standing.digest,
                digest_at: standing.digest_at,
            });
        }
        shared.rest(LOOK_EVERY);
    }
}
