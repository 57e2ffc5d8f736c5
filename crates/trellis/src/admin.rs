use std::{fmt, time::Duration};

use serde_json::Value;

use crate::exit::{Ended, Exit};

/// How long the admin port may take for anything; a change of members waits for a learner to
/// catch up.
const PATIENCE: Duration = Duration::from_secs(120);

/// A short call to the admin port of a node.
pub(crate) struct Admin {
    url: String,
    agent: ureq::Agent,
}

/// What a node answered.
pub(crate) struct Said {
    /// The HTTP status.
    pub status: u16,
    /// Its JSON; a string if it was none.
    pub body: Value,
}

impl Admin {
    /// A node whose admin port is at `addr`: a URL, or HOST:PORT.
    pub(crate) fn at(addr: &str) -> Self {
        Self::with_patience(addr, PATIENCE)
    }

    /// The same, for questions that are answered at once or not at all.
    pub(crate) fn with_patience(addr: &str, patience: Duration) -> Self {
        let url = addr.trim_end_matches('/');
        let url = if url.contains("://") {
            url.to_owned()
        } else {
            format!("http://{url}")
        };
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(3).min(patience)))
            .timeout_global(Some(patience))
            .build()
            .into();
        Self { url, agent }
    }

    /// Asks.
    ///
    /// # Errors
    ///
    /// [`Exit::Unreachable`] if nobody answers.
    pub(crate) fn get(&self, path: &str) -> Result<Said, Ended> {
        let answer = self.agent.get(format!("{}{path}", self.url)).call();
        self.said(answer)
    }

    /// Tells.
    ///
    /// # Errors
    ///
    /// [`Exit::Unreachable`] if nobody answers.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Said, Ended> {
        let answer = self
            .agent
            .post(format!("{}{path}", self.url))
            .send_json(body);
        self.said(answer)
    }

    /// Takes away.
    ///
    /// # Errors
    ///
    /// [`Exit::Unreachable`] if nobody answers.
    pub(crate) fn delete(&self, path: &str) -> Result<Said, Ended> {
        let answer = self.agent.delete(format!("{}{path}", self.url)).call();
        self.said(answer)
    }

    fn said(
        &self,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Said, Ended> {
        let unreachable = |error: &dyn fmt::Display| {
            Ended::new(
                Exit::Unreachable,
                format!(
                    "no answer from {} ({error}); is that a node's admin port (--addr)?",
                    self.url
                ),
            )
        };
        let mut answer = answer.map_err(|error| unreachable(&error))?;
        let status = answer.status().as_u16();
        let text = answer
            .body_mut()
            .read_to_string()
            .map_err(|error| unreachable(&error))?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Said { status, body })
    }
}

impl Said {
    /// The body, if the node did what was asked.
    ///
    /// # Errors
    ///
    /// [`Exit::No`] with the node's own sentence.
    pub(crate) fn done(self) -> Result<Value, Ended> {
        if (200..300).contains(&self.status) {
            return Ok(self.body);
        }
        let why = match self.body.get("error").and_then(Value::as_str) {
            Some(sentence) => sentence.to_owned(),
            None => format!("the node answered {}: {}", self.status, self.body),
        };
        Err(Ended::new(Exit::No, why))
    }
}
