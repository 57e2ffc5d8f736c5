use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::limits;

/// A tube's name: 1 to 200 bytes out of `A–Z a–z 0–9 - + / ; . $ _ ( )`, not starting with `-`.
/// Holding one is the proof that it was checked. Cheap to clone.
///
/// Source: protocol specification, 2.5.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TubeName(Arc<str>);

/// Why some bytes are no tube name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTubeName {
    /// No byte at all.
    #[error("a tube name must not be empty")]
    Empty,
    /// Starts with `-`.
    #[error("a tube name must not start with '-'")]
    LeadingHyphen,
    /// More than 200 bytes.
    #[error("a tube name has at most 200 bytes, this one has {0}")]
    TooLong(usize),
    /// A byte outside the alphabet.
    #[error("a tube name consists of letters, digits and - + / ; . $ _ ( )")]
    Alphabet,
}

impl TubeName {
    /// The tube that always exists, used and watched by every new connection.
    pub fn default_tube() -> Self {
        Self("default".into())
    }

    /// Checks `raw` against the protocol's alphabet and bounds.
    ///
    /// # Errors
    ///
    /// The first breach in the order empty, alphabet, leading hyphen, length.
    pub fn parse(raw: &[u8]) -> Result<Self, BadTubeName> {
        match raw {
            [] => Err(BadTubeName::Empty),
            _ if !raw.iter().all(|byte| Self::allows(*byte)) => Err(BadTubeName::Alphabet),
            [b'-', ..] => Err(BadTubeName::LeadingHyphen),
            _ if raw.len() > limits::TUBE_NAME_BYTES_MAX => Err(BadTubeName::TooLong(raw.len())),
            // The alphabet is ASCII, so this cannot fail; it is checked all the same.
            _ => std::str::from_utf8(raw)
                .map(|text| Self(text.into()))
                .map_err(|_| BadTubeName::Alphabet),
        }
    }

    /// Whether `byte` may stand in a tube name (the first byte may not be `-`).
    pub fn allows(byte: u8) -> bool {
        byte.is_ascii_alphanumeric() || b"-+/;.$_()".contains(&byte)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is `default`, the tube that never vanishes.
    pub fn is_default(&self) -> bool {
        &*self.0 == "default"
    }
}

impl fmt::Display for TubeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<String> for TubeName {
    type Error = BadTubeName;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(text.as_bytes())
    }
}

impl From<TubeName> for String {
    fn from(name: TubeName) -> Self {
        name.0.as_ref().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_to_two_hundred_bytes_of_the_alphabet() {
        assert_eq!(TubeName::parse(b""), Err(BadTubeName::Empty));
        assert_eq!(TubeName::parse(b"-a"), Err(BadTubeName::LeadingHyphen));
        assert_eq!(TubeName::parse(b"a b"), Err(BadTubeName::Alphabet));
        assert_eq!(TubeName::parse("ä".as_bytes()), Err(BadTubeName::Alphabet));
        assert!(TubeName::parse(&[b'a'; 200]).is_ok());
        assert_eq!(
            TubeName::parse(&[b'a'; 201]),
            Err(BadTubeName::TooLong(201))
        );
        let all = b"A-Za-z09-+/;.$_()";
        assert_eq!(
            TubeName::parse(all).map(String::from).as_deref(),
            Ok("A-Za-z09-+/;.$_()")
        );
    }
}
