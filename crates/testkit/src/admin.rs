//! Questions to a node's admin port.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// The body that an admin port answers to a GET.
///
/// # Errors
///
/// It can't be reached, or the answer is not 200.
pub fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let answer = ask(address, "GET", path, "", Duration::from_secs(10))?;
    if answer.status != 200 {
        return Err(io::Error::other(format!(
            "{path}: {} {}",
            answer.status, answer.body
        )));
    }
    Ok(answer.body)
}

/// What an admin port answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP's status code.
    pub status: u16,
    /// The head, with the status line.
    pub head: String,
    /// The body.
    pub body: String,
}

/// Asks an admin port anything; `body` is JSON, or empty. No part of the answer takes longer than
/// `patience`.
///
/// # Errors
///
/// It can't be reached, or its answer is no HTTP.
pub fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
    patience: Duration,
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, patience.min(Duration::from_secs(2)))?;
    stream.set_read_timeout(Some(patience))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("{path}: {head:?} is no HTTP")))?;
    let is_chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    Ok(Answer {
        status,
        head: head.to_owned(),
        body: if is_chunked {
            unchunked(body)
        } else {
            body.to_owned()
        },
    })
}

/// What a node knows of itself and its cluster.
///
/// # Errors
///
/// As [`get`], or no JSON.
pub fn status(address: SocketAddr) -> io::Result<serde_json::Value> {
    serde_json::from_str(&get(address, "/v1/status")?).map_err(io::Error::other)
}

/// Joins the pieces of a chunked body: a length in hexadecimal, a line end, so many bytes, a line end.
fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap_or(0);
        let Some(chunk) = rest.get(..length).filter(|_| length > 0) else {
            break;
        };
        whole.push_str(chunk);
        body = rest.get(length + 2..).unwrap_or_default();
    }
    whole
}
