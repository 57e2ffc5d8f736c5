use std::{io, net::SocketAddr, time::Duration};

use trellis_consensus::Membership;
use trellis_rpc::ClusterId;
use trellis_types::{NodeId, Run};

use super::{DiskMark, DiskSpace, Seed};

/// Who this node is, on its disk. Every change is synced before its function returns; so they
/// block, and are called where blocking is allowed.
///
/// Source: architecture, section 12.
pub trait Identity: Send + Sync + 'static {
    /// The id: random, synced before anybody is told.
    fn node(&self) -> NodeId;
    /// The stable name; empty if none was ever set.
    fn name(&self) -> String;
    /// The cluster that the node has bound itself to.
    fn cluster(&self) -> Option<ClusterId>;
    /// The last run that was used; 0 if none was.
    fn run(&self) -> Run;
    /// Raises the run.
    ///
    /// # Errors
    ///
    /// The disk's; the run must then not be used.
    fn next_run(&self) -> io::Result<Run>;
    /// Binds to `cluster`, for ever once there is a log entry.
    ///
    /// # Errors
    ///
    /// The disk's, or that another cluster is bound.
    fn bind(&self, cluster: ClusterId) -> io::Result<()>;
    /// Forgets the cluster. Only for a node without a log entry.
    ///
    /// # Errors
    ///
    /// The disk's, or that there is a log entry.
    fn unbind(&self) -> io::Result<()>;
    /// Sets the name.
    ///
    /// # Errors
    ///
    /// The disk's.
    fn set_name(&self, name: &str) -> io::Result<()>;
}

/// What the house-keeping asks of the storage below.
pub trait Disk: Send + Sync + 'static {
    /// Room on the volume of the data folder. May block shortly.
    ///
    /// # Errors
    ///
    /// The operating system's.
    fn space(&self) -> io::Result<DiskSpace>;
    /// Bytes of log entries behind `index`; of all that are held for `None`. About.
    fn log_bytes_after(&self, index: Option<u64>) -> u64;
    /// The greatest index behind which `bytes` of log are left; `None` if there is not more log
    /// than that.
    fn log_index_keeping(&self, bytes: u64) -> Option<u64>;
    /// Bytes of the state on disk, about.
    fn state_bytes(&self) -> u64;
    /// How long the oldest outstanding log write has been so; `None` if none is outstanding.
    fn oldest_write(&self) -> Option<Duration>;
    /// Gives back what deletions left on disk. Blocks for as long as it takes.
    ///
    /// # Errors
    ///
    /// The disk's.
    fn compact(&self) -> io::Result<()>;
    /// Notes, synced, that the state must not be relied upon any more, and why.
    ///
    /// # Errors
    ///
    /// The disk's.
    fn quarantine(&self, why: &str) -> io::Result<()>;
    /// What was noted before this start.
    fn quarantined(&self) -> Option<String>;
    /// Notes who the members are, `own` among them, for people and for whoever is about to clear the
    /// folder. Nothing depends on it; what keeps no such list does nothing.
    ///
    /// # Errors
    ///
    /// The disk's.
    fn note_members(&self, _membership: &Membership, _own: NodeId) -> io::Result<()> {
        Ok(())
    }
}

/// How a node finds others, and is found.
#[derive(Clone, Debug)]
pub struct MemberSettings {
    /// Its stable name.
    pub name: String,
    /// Where the peer port listens.
    pub listen: SocketAddr,
    /// Host and port under which others reach the peer port; a DNS name stays a name.
    pub address: String,
    /// Everybody who forms the cluster at its first boot, this node included; empty for a node
    /// that forms a cluster of its own.
    pub initial_members: Vec<Seed>,
    /// Peer addresses of an existing cluster to join.
    pub join: Vec<String>,
    /// Below how much room on disk puts are refused, on every node.
    pub disk_mark: DiskMark,
}

/// Why the membership part of a configuration can't be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMembers {
    /// The name is no name.
    #[error("name is {0:?}; allowed are 1 to 63 letters, digits, '-', '_' and '.'")]
    Name(String),
    /// An address is no address.
    #[error("{key} is {found:?}; allowed is host:port with a port from 1 to 65535")]
    Address {
        /// Where.
        key: &'static str,
        /// What.
        found: String,
    },
    /// The list lacks this node.
    #[error("initial_members names {found}, but not this node; allowed is a list with {name:?}")]
    NotListed {
        /// This node.
        name: String,
        /// Who is.
        found: String,
    },
    /// A name or address stands twice in the list.
    #[error("initial_members has {0:?} twice; allowed is each name and each address once")]
    Twice(String),
}

impl MemberSettings {
    /// Checks everything that can be checked without a network.
    ///
    /// # Errors
    ///
    /// The first breach, with key, found and allowed.
    pub fn check(&self) -> Result<(), BadMembers> {
        check_name(&self.name)?;
        check_address("peer address", &self.address)?;
        for address in &self.join {
            check_address("join", address)?;
        }
        let mut known = std::collections::BTreeSet::new();
        for seed in &self.initial_members {
            check_name(&seed.name)?;
            check_address("initial_members", &seed.address)?;
            for word in [&seed.name, &seed.address] {
                if !known.insert(word) {
                    return Err(BadMembers::Twice(word.clone()));
                }
            }
        }
        // One that joins may have the list that those who formed the cluster had.
        if self.join.is_empty()
            && !self.initial_members.is_empty()
            && !self
                .initial_members
                .iter()
                .any(|seed| seed.name == self.name)
        {
            let names: Vec<&str> = self
                .initial_members
                .iter()
                .map(|seed| seed.name.as_str())
                .collect();
            return Err(BadMembers::NotListed {
                name: self.name.clone(),
                found: names.join(", "),
            });
        }
        Ok(())
    }

    /// The address that goes into the membership: what `initial_members` says, else the own one.
    pub fn own_address(&self) -> String {
        let own = self
            .initial_members
            .iter()
            .find(|seed| seed.name == self.name);
        own.map_or_else(|| self.address.clone(), |seed| seed.address.clone())
    }
}

fn check_name(name: &str) -> Result<(), BadMembers> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match name.len() {
        1..=63 if name.bytes().all(allowed) => Ok(()),
        _ => Err(BadMembers::Name(name.to_owned())),
    }
}

fn check_address(key: &'static str, address: &str) -> Result<(), BadMembers> {
    let good = address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty()
            && !host.contains(char::is_whitespace)
            && port.parse::<u16>().is_ok_and(|port| port != 0)
    });
    if good {
        Ok(())
    } else {
        Err(BadMembers::Address {
            key,
            found: address.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> MemberSettings {
        let seed = |name: &str| Seed {
            name: name.into(),
            address: format!("{name}.example:11301"),
        };
        MemberSettings {
            name: "trellis-0".into(),
            listen: SocketAddr::from(([127, 0, 0, 1], 11301)),
            address: "127.0.0.1:11301".into(),
            initial_members: ["trellis-0", "trellis-1", "trellis-2"].map(seed).into(),
            join: Vec::new(),
            disk_mark: DiskMark::default(),
        }
    }

    #[test]
    fn mistakes_are_one_sentence_with_key_found_and_allowed() {
        assert_eq!(settings().check(), Ok(()));
        assert_eq!(settings().own_address(), "trellis-0.example:11301");
        let alone = MemberSettings {
            initial_members: Vec::new(),
            ..settings()
        };
        assert_eq!(alone.check(), Ok(()));
        assert_eq!(alone.own_address(), "127.0.0.1:11301");

        let text = |bad: MemberSettings| bad.check().err().map(|error| error.to_string());
        let stranger = text(MemberSettings {
            name: "other".into(),
            ..settings()
        });
        assert!(stranger.is_some_and(|text| text.contains("not this node")));
        let spaced = text(MemberSettings {
            name: "a b".into(),
            ..settings()
        });
        assert!(spaced.is_some_and(|text| text.starts_with("name is \"a b\"; allowed")));
        let joining = text(MemberSettings {
            join: vec!["nowhere".into()],
            ..settings()
        });
        assert!(joining.is_some_and(|text| text.starts_with("join is \"nowhere\"; allowed")));
        let mut twice = settings();
        twice.initial_members.push(twice.initial_members[0].clone());
        assert_eq!(twice.check(), Err(BadMembers::Twice("trellis-0".into())));
    }
}
