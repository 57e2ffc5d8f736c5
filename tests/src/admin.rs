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
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if !head.starts_with("HTTP/1.1 200") {
        return Err(io::Error::other(format!("{path}: {head}")));
    }
    if head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked")
    {
        return Ok(unchunked(body));
    }
    Ok(body.to_owned())
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
