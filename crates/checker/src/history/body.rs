use serde::{Deserialize, Serialize};

/// What is known of a job's body: enough to follow a job whose id nobody was told, and to see that
/// not a byte has changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Body {
    /// Unique among all puts of a run; `None` if no key could be read in it.
    pub key: Option<String>,
    /// Its length.
    pub bytes: u32,
    /// CRC-32C of all its bytes.
    pub crc: u32,
}

/// Stands between a body's key and what follows.
const END_OF_KEY: u8 = b'|';

impl Body {
    /// The body of `key`, filled up to `bytes` bytes (at least the key and its end).
    pub fn named(key: &str, bytes: u32) -> Self {
        Self::seen(&Self::content(key, bytes))
    }

    /// What [`Body::named`] speaks of: the key, then bytes of every value, CRLF and NUL among them.
    pub fn content(key: &str, bytes: u32) -> Vec<u8> {
        let mut content = Vec::with_capacity(bytes as usize);
        content.extend_from_slice(key.as_bytes());
        content.push(END_OF_KEY);
        // What the codec could stumble over stands first, so that short bodies have it too.
        content.extend_from_slice(b"\r\n\0");
        let mut word = u64::from(crc32c::crc32c(key.as_bytes())) | 1;
        while content.len() < bytes as usize {
            // Knuth's multiplicative congruence: every byte value, and no two bodies alike.
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            content.push((word >> 56) as u8);
        }
        content.truncate((bytes as usize).max(key.len() + 1));
        content
    }

    /// What is to be recorded of a body that arrived.
    pub fn seen(content: &[u8]) -> Self {
        let key = content
            .iter()
            .position(|byte| *byte == END_OF_KEY)
            .and_then(|end| std::str::from_utf8(&content[..end]).ok())
            .filter(|key| !key.is_empty() && key.len() <= 64)
            .map(str::to_owned);
        Self {
            key,
            bytes: u32::try_from(content.len()).unwrap_or(u32::MAX),
            crc: crc32c::crc32c(content),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_tells_its_key_and_any_changed_byte() {
        for bytes in [0, 1, 9, 100, 65_535] {
            let content = Body::content("c3-17", bytes);
            assert_eq!(content.len(), (bytes as usize).max(6));
            let body = Body::seen(&content);
            assert_eq!(body, Body::named("c3-17", bytes));
            assert_eq!(body.key.as_deref(), Some("c3-17"));
            let mut changed = content.clone();
            if let Some(last) = changed.last_mut() {
                *last ^= 1;
            }
            assert_ne!(Body::seen(&changed), body);
        }
        assert_eq!(Body::seen(b"\0\0\0").key, None);
    }
}
