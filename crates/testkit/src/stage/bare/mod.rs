//! The bare machine behind the wire codec, in one thread and with simulated time: no socket, no
//! log, no disk. What a node answers by itself (`use`, `watch`, lists, figures) a small front
//! answers here.

mod flags;
mod front;
mod requests;
mod stats;

use std::{collections::BTreeMap, io, time::Duration};

use trellis_types::ConnectionId;

use front::Front;

use super::{Heard, House, Stage, Troupe};
use crate::talk::Talk;

/// The machine and some named connections to it.
pub struct BareStage {
    front: Front,
    people: BTreeMap<String, ConnectionId>,
}

impl BareStage {
    /// A machine in which nothing has happened, started with beanstalkd's flags.
    pub fn new(flags: &[String]) -> Self {
        Self {
            front: Front::new(flags::body_bytes_max(flags)),
            people: BTreeMap::new(),
        }
    }

    fn connection(&self, who: &str) -> io::Result<ConnectionId> {
        self.people
            .get(who)
            .copied()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Stage for BareStage {
    fn connect(&mut self, who: &str) -> io::Result<()> {
        let connection = self.front.connect();
        if let Some(before) = self.people.insert(who.into(), connection) {
            self.front.close(before)?;
        }
        Ok(())
    }

    fn send(&mut self, who: &str, bytes: &[u8]) -> io::Result<()> {
        self.front.hear(self.connection(who)?, bytes)
    }

    fn receive(&mut self, who: &str, patience: Duration) -> io::Result<Heard> {
        let connection = self.connection(who)?;
        let until = self.front.now() + patience;
        loop {
            let (bytes, ended) = self.front.take_output(connection)?;
            if !bytes.is_empty() {
                return Ok(Heard::Bytes(bytes));
            }
            if ended {
                return Ok(Heard::End);
            }
            if !self.front.advance_to_next_due(until)? {
                return Ok(Heard::Nothing);
            }
        }
    }

    fn half_close(&mut self, who: &str) -> io::Result<()> {
        self.front.half_close(self.connection(who)?)
    }

    fn close(&mut self, who: &str) -> io::Result<()> {
        let connection = self.people.remove(who).ok_or(io::ErrorKind::NotConnected)?;
        self.front.close(connection)
    }

    fn pass_time(&mut self, time: Duration) {
        let until = self.front.now() + time;
        // A broken invariant is reported by the next word that is said.
        while let Ok(true) = self.front.advance_to_next_due(until) {}
    }

    fn now(&self) -> Duration {
        self.front.now()
    }

    fn early(&self) -> Duration {
        Duration::ZERO
    }

    fn late(&self) -> Duration {
        // A TTR is due a millisecond behind its deadline.
        Duration::from_millis(1)
    }

    fn drain(&mut self) -> io::Result<()> {
        self.front.drain();
        Ok(())
    }

    fn restart(&mut self, flags: Option<&[String]>) -> io::Result<()> {
        self.people.clear();
        self.front.restart(flags.map(flags::body_bytes_max))
    }

    fn stall(&mut self, time: Duration) -> io::Result<()> {
        self.front.stall(time)
    }
}

/// A new machine for every talk.
pub struct BareHouse;

impl House for BareHouse {
    fn name(&self) -> &str {
        "bare machine"
    }

    fn troupe(&self) -> Troupe {
        Troupe::Trellis
    }

    fn open(&self, talk: &Talk) -> io::Result<Result<Box<dyn Stage>, String>> {
        if talk.needs.sockets {
            return Ok(Err("needs sockets".into()));
        }
        let flags = talk.needs.fresh.clone().unwrap_or_default();
        Ok(Ok(Box::new(BareStage::new(&flags))))
    }
}
