use serde::Serialize;

/// One figure, and what it was to be.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) what: String,
    pub(crate) figure: String,
    /// In words; empty if none is set.
    pub(crate) bar: String,
    /// `None` if no bar is set.
    pub(crate) holds: Option<bool>,
}

impl Verdict {
    /// A figure without a bar.
    pub(crate) fn told(what: impl Into<String>, figure: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            figure: figure.into(),
            bar: String::new(),
            holds: None,
        }
    }

    /// A figure with one.
    pub(crate) fn new(
        what: impl Into<String>,
        figure: impl Into<String>,
        bar: impl Into<String>,
        holds: bool,
    ) -> Self {
        Self {
            what: what.into(),
            figure: figure.into(),
            bar: bar.into(),
            holds: Some(holds),
        }
    }

    pub(crate) fn row(&self) -> Vec<String> {
        let word = match self.holds {
            Some(true) => "holds",
            Some(false) => "FALLS SHORT",
            None => "",
        };
        vec![
            self.what.clone(),
            self.figure.clone(),
            self.bar.clone(),
            word.to_owned(),
        ]
    }
}

/// Bytes, in a unit in which they are easily read.
pub(crate) fn bytes(count: f64) -> String {
    if count.abs() < 10_240.0 {
        format!("{count:.0} B")
    } else if count.abs() < 10_485_760.0 {
        format!("{:.1} KiB", count / 1024.0)
    } else {
        format!("{:.0} MiB", count / 1_048_576.0)
    }
}
