use trellis_checker::history::Call;
use trellis_types::TubeName;
use trellis_wire::beanstalk::{Reply, Request};

use super::Silence;

/// What one connection uses and watches.
#[derive(Debug)]
pub struct Tubes {
    used: TubeName,
    watched: Vec<TubeName>,
}

impl Default for Tubes {
    /// As every connection begins.
    fn default() -> Self {
        Self {
            used: TubeName::default_tube(),
            watched: vec![TubeName::default_tube()],
        }
    }
}

impl Tubes {
    /// What is to be said first, so that `call` is about its tubes. It counts as said: whoever gets no [`Self::agreed`]
    /// for each of them gives the connection up.
    #[must_use]
    pub fn before(&mut self, call: &Call) -> Vec<Request> {
        match call {
            Call::Put { tube, .. }
            | Call::Kick { tube, .. }
            | Call::PeekReady { tube }
            | Call::PeekDelayed { tube }
            | Call::PeekBuried { tube }
                if self.used != *tube =>
            {
                self.used = tube.clone();
                vec![Request::Use(tube.clone())]
            }
            Call::Reserve { tubes, .. } => self.watch(tubes),
            _ => Vec::new(),
        }
    }

    /// As [`Self::before`]: what makes the connection watch exactly `tubes`.
    #[must_use]
    pub fn watch(&mut self, tubes: &[TubeName]) -> Vec<Request> {
        let watched = std::mem::replace(&mut self.watched, tubes.to_vec());
        let new = tubes.iter().filter(|tube| !watched.contains(tube));
        let gone = watched.iter().filter(|tube| !tubes.contains(tube));
        // First the new ones: a connection always watches something.
        new.cloned()
            .map(Request::Watch)
            .chain(gone.cloned().map(Request::Ignore))
            .collect()
    }

    /// Whether such a request was answered as it should be.
    ///
    /// # Errors
    ///
    /// It was not, in words; the connection is of no use.
    pub fn agreed(reply: &Reply) -> Result<(), Silence> {
        match reply {
            Reply::Using(_) | Reply::Watching(_) => Ok(()),
            other => Err(Silence::Closed(format!(
                "use, watch or ignore was answered {other:?}"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tube(name: &str) -> TubeName {
        TubeName::parse(name.as_bytes()).expect("a name")
    }

    #[test]
    fn only_what_is_missing_is_said() {
        let mut tubes = Tubes::default();
        let kick = Call::Kick {
            tube: tube("a"),
            bound: 1,
        };
        assert_eq!(tubes.before(&kick), [Request::Use(tube("a"))]);
        assert_eq!(tubes.before(&kick), []);

        let [a, b, default] = ["a", "b", "default"].map(tube);
        assert_eq!(
            tubes.watch(&[a.clone(), b.clone()]),
            [
                Request::Watch(a.clone()),
                Request::Watch(b.clone()),
                Request::Ignore(default)
            ]
        );
        assert_eq!(tubes.watch(&[a.clone(), b.clone()]), []);
        assert_eq!(tubes.watch(&[a]), [Request::Ignore(b)]);
    }
}
