use super::{
    Machine,
    image::{BadImage, ensure},
};

impl Machine {
    /// Verifies the machine's own invariants: its rows are a sound image, and every index, count,
    /// due moment and the digest are what that image asks for.
    ///
    /// Builds a second machine, so it costs as much as loading one: for tests, and for a node that
    /// doubts itself.
    ///
    /// # Errors
    ///
    /// Names the first that is broken.
    pub fn check(&self) -> Result<(), String> {
        let sound = Self::load(self.rows()).map_err(|bad| bad.0)?;
        let parts = [
            (
                "there are rows touched between applies",
                self.touched.is_empty(),
            ),
            (
                "the counters differ from their row",
                self.meta == sound.meta,
            ),
            (
                "the pages of jobs are out of order",
                self.jobs == sound.jobs,
            ),
            (
                "the holds differ from the reserved jobs",
                self.holds == sound.holds,
            ),
            (
                "the indexes of a tube differ from its jobs",
                self.tubes == sound.tubes,
            ),
            ("the names differ from the tubes", self.names == sound.names),
            (
                "the highest runs differ from their rows",
                self.runs == sound.runs,
            ),
            (
                "sessions, lines or references differ",
                self.origins == sound.origins,
            ),
            (
                "the due events differ from what they follow from",
                self.due == sound.due,
            ),
            (
                "a count differs from what it counts",
                self.counts == sound.counts,
            ),
            (
                "the digest is not the sum of the rows",
                self.sum == sound.sum,
            ),
        ];
        match parts.iter().find(|(_, holds)| !holds) {
            Some((breach, _)) => Err((*breach).to_owned()),
            None => Ok(()),
        }
    }

    /// What holds between any two entries, beyond each row being sound by itself.
    pub(super) fn check_settled(&self) -> Result<(), BadImage> {
        for tube in self.tubes.values() {
            ensure(tube.is_wanted(), || {
                format!("nothing keeps the tube {} alive", tube.name)
            })?;
        }
        for (origin, live) in &self.origins {
            for name in live.lines.names() {
                let offered = self.tube_named(name).and_then(|tube| tube.offered());
                ensure(live.suspended || offered.is_none(), || {
                    format!("a session of {origin} waits for {name} beside a ready job")
                })?;
            }
        }
        Ok(())
    }
}
