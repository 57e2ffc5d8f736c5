//! The YAML of `stats`, `stats-tube`, `stats-job` and the tube lists, byte for byte as clients
//! that read it line by line expect it.
//!
//! Source: protocol specification, 7.1.

use bytes::{Bytes, BytesMut};
use trellis_types::TubeName;

use super::decimal::put_decimal;

/// A dictionary: `---`, then one `key: value` line per entry in the order of the calls.
#[derive(Debug)]
pub struct Dict(BytesMut);

/// A list of tubes: `---`, then one `- name` line each, never quoted.
#[derive(Debug)]
pub struct List(BytesMut);

impl Default for Dict {
    fn default() -> Self {
        Self::new()
    }
}

impl Dict {
    /// An empty dictionary.
    pub fn new() -> Self {
        // The full `stats` takes about 1,200 bytes.
        let mut out = BytesMut::with_capacity(1_536);
        out.extend_from_slice(b"---\n");
        Self(out)
    }

    /// An integer, in decimal.
    pub fn number(&mut self, key: &str, value: u64) -> &mut Self {
        self.key(key);
        put_decimal(&mut self.0, value);
        self.0.extend_from_slice(b"\n");
        self
    }

    /// A value that stands bare: `state`, `draining`, `id`.
    pub fn bare(&mut self, key: &str, value: &str) -> &mut Self {
        self.key(key);
        self.text(value);
        self.0.extend_from_slice(b"\n");
        self
    }

    /// A value in double quotes: `version`, `hostname`, `os`, `platform`, `name`, `tube`.
    ///
    /// The format knows no escape, so a byte that would end the quotes or the line is written as
    /// `?`.
    pub fn quoted(&mut self, key: &str, value: &str) -> &mut Self {
        self.key(key);
        self.0.extend_from_slice(b"\"");
        self.text(value);
        self.0.extend_from_slice(b"\"\n");
        self
    }

    /// A duration given in microseconds, as seconds with six decimals: `rusage-utime`.
    pub fn seconds(&mut self, key: &str, micros: u64) -> &mut Self {
        self.key(key);
        put_decimal(&mut self.0, micros / 1_000_000);
        let mut rest = micros % 1_000_000;
        let mut decimals = *b".000000";
        for place in decimals[1..].iter_mut().rev() {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.0.extend_from_slice(&decimals);
        self.0.extend_from_slice(b"\n");
        self
    }

    /// The finished text, for [`Reply::Ok`](super::Reply::Ok).
    pub fn finish(&mut self) -> Bytes {
        self.0.split().freeze()
    }

    fn key(&mut self, key: &str) {
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b": ");
    }

    fn text(&mut self, value: &str) {
        if value.bytes().any(breaks_the_line) {
            let safe = value
                .bytes()
                .map(|byte| if breaks_the_line(byte) { b'?' } else { byte });
            self.0.extend(safe);
        } else {
            self.0.extend_from_slice(value.as_bytes());
        }
    }
}

fn breaks_the_line(byte: u8) -> bool {
    byte < b' ' || byte == b'"'
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

impl List {
    /// An empty list.
    pub fn new() -> Self {
        Self(BytesMut::from(&b"---\n"[..]))
    }

    /// One more tube.
    pub fn entry(&mut self, tube: &TubeName) -> &mut Self {
        self.0.extend_from_slice(b"- ");
        self.0.extend_from_slice(tube.as_str().as_bytes());
        self.0.extend_from_slice(b"\n");
        self
    }

    /// The finished text, for [`Reply::Ok`](super::Reply::Ok).
    pub fn finish(&mut self) -> Bytes {
        self.0.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Specification 7.5, word for word.
    #[test]
    fn the_examples_of_the_specification() {
        let mut job = Dict::new();
        job.number("id", 1)
            .quoted("tube", "default")
            .bare("state", "ready");
        for key in ["pri", "age", "delay"] {
            job.number(key, 0);
        }
        job.number("ttr", 10);
        let zeros = [
            "time-left",
            "file",
            "reserves",
            "timeouts",
            "releases",
            "buries",
            "kicks",
        ];
        for key in zeros {
            job.number(key, 0);
        }
        let text = job.finish();
        assert_eq!(text.len(), 146);
        assert_eq!(
            text,
            "---\nid: 1\ntube: \"default\"\nstate: ready\npri: 0\nage: 0\ndelay: 0\nttr: 10\n\
             time-left: 0\nfile: 0\nreserves: 0\ntimeouts: 0\nreleases: 0\nburies: 0\nkicks: 0\n"
        );

        let list = List::new().entry(&TubeName::default_tube()).finish();
        assert_eq!(list, "---\n- default\n");
    }

    #[test]
    fn durations_have_six_decimals() {
        let text = Dict::new()
            .seconds("rusage-utime", 1_000_042)
            .seconds("x", 7)
            .finish();
        assert_eq!(text, "---\nrusage-utime: 1.000042\nx: 0.000007\n");
    }

    #[test]
    fn no_value_can_break_its_line() {
        let text = Dict::new().quoted("hostname", "a\"b\nc").finish();
        assert_eq!(text, "---\nhostname: \"a?b?c\"\n");
    }
}
