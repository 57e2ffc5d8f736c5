use std::io::BufRead;

use super::Record;

/// A line that is no record.
#[derive(Debug, thiserror::Error)]
pub enum BadLine {
    /// It could not be read.
    #[error("line {line} cannot be read")]
    Io {
        /// Counted from 1.
        line: u64,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It says nothing known.
    #[error("line {line} is no record of a history")]
    Json {
        /// Counted from 1.
        line: u64,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// Reads records one by one. Empty lines are skipped.
pub fn read(input: impl BufRead) -> impl Iterator<Item = Result<Record, BadLine>> {
    (1..).zip(input.lines()).filter_map(|(line, text)| {
        let text = match text {
            Ok(text) => text,
            Err(source) => return Some(Err(BadLine::Io { line, source })),
        };
        if text.trim().is_empty() {
            return None;
        }
        Some(serde_json::from_str(&text).map_err(|source| BadLine::Json { line, source }))
    })
}
