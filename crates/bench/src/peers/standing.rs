use super::peer::Peer;
use crate::servers::{Launch, Server, Site};

/// A peer that is started when it is needed: a new one for each load, or for all of them if starting takes long.
#[derive(Debug)]
pub(super) struct Standing<'a> {
    peer: Peer,
    site: &'a Site,
    traced: bool,
    running: Option<(Server, Launch)>,
}

impl<'a> Standing<'a> {
    /// With `traced`, its calls that make data durable are written down.
    pub(super) fn new(peer: Peer, site: &'a Site, traced: bool) -> Self {
        Self {
            peer,
            site,
            traced,
            running: None,
        }
    }

    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    /// It, running.
    pub(super) fn get(&mut self) -> anyhow::Result<&(Server, Launch)> {
        let running = match self.running.take() {
            Some(running) => running,
            None => {
                let mut launch = self.site.launch("peer")?;
                if self.traced {
                    launch = launch.traced();
                }
                (self.peer.start(&launch)?, launch)
            }
        };
        Ok(self.running.insert(running))
    }

    /// A load has ended, well or not. What failed once is not trusted with the next one.
    pub(super) fn rest(&mut self, sound: bool) {
        if !sound || !self.peer.starts_slowly() {
            self.running = None;
        }
    }
}
