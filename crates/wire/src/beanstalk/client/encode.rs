use bytes::BytesMut;
use trellis_types::TubeName;

use crate::beanstalk::{Request, decimal::put_decimal};

/// Appends `request` as a client sends it: its line, and its body with the CRLF if it is a put.
pub fn encode_request(request: &Request, out: &mut BytesMut) {
    match request {
        Request::Put {
            priority,
            delay,
            ttr,
            body,
        } => {
            let length = body.len() as u64;
            out.reserve(body.len() + 64);
            let numbers = [priority.0.into(), delay.0.into(), ttr.0.into(), length];
            numbered(out, b"put", &numbers);
            out.extend_from_slice(body);
            out.extend_from_slice(b"\r\n");
        }
        Request::Use(tube) => named(out, b"use ", tube),
        Request::Watch(tube) => named(out, b"watch ", tube),
        Request::Ignore(tube) => named(out, b"ignore ", tube),
        Request::Reserve => out.extend_from_slice(b"reserve\r\n"),
        Request::ReserveWithTimeout(seconds) => {
            numbered(out, b"reserve-with-timeout", &[seconds.0.into()]);
        }
        Request::ReserveJob(job) => numbered(out, b"reserve-job", &[job.0]),
        Request::Delete(job) => numbered(out, b"delete", &[job.0]),
        Request::Release {
            job,
            priority,
            delay,
        } => {
            numbered(out, b"release", &[job.0, priority.0.into(), delay.0.into()]);
        }
        Request::Bury { job, priority } => numbered(out, b"bury", &[job.0, priority.0.into()]),
        Request::Touch(job) => numbered(out, b"touch", &[job.0]),
        Request::Kick { bound } => numbered(out, b"kick", &[(*bound).into()]),
        Request::KickJob(job) => numbered(out, b"kick-job", &[job.0]),
        Request::Peek(job) => numbered(out, b"peek", &[job.0]),
        Request::PeekReady => out.extend_from_slice(b"peek-ready\r\n"),
        Request::PeekDelayed => out.extend_from_slice(b"peek-delayed\r\n"),
        Request::PeekBuried => out.extend_from_slice(b"peek-buried\r\n"),
        Request::StatsJob(job) => numbered(out, b"stats-job", &[job.0]),
        Request::StatsTube(tube) => named(out, b"stats-tube ", tube),
        Request::Stats => out.extend_from_slice(b"stats\r\n"),
        Request::ListTubes => out.extend_from_slice(b"list-tubes\r\n"),
        Request::ListTubesWatched => out.extend_from_slice(b"list-tubes-watched\r\n"),
        Request::ListTubeUsed => out.extend_from_slice(b"list-tube-used\r\n"),
        Request::PauseTube { tube, delay } => {
            out.extend_from_slice(b"pause-tube ");
            out.extend_from_slice(tube.as_str().as_bytes());
            numbered(out, b"", &[delay.0.into()]);
        }
        Request::Quit => out.extend_from_slice(b"quit\r\n"),
    }
}

fn named(out: &mut BytesMut, word: &[u8], tube: &TubeName) {
    out.extend_from_slice(word);
    out.extend_from_slice(tube.as_str().as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn numbered(out: &mut BytesMut, word: &[u8], numbers: &[u64]) {
    out.extend_from_slice(word);
    for number in numbers {
        out.extend_from_slice(b" ");
        put_decimal(out, *number);
    }
    out.extend_from_slice(b"\r\n");
}
