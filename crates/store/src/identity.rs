use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use prost::Message;
use trellis_rpc::ClusterId;
use trellis_types::{NodeId, Run};

use crate::codec;
use crate::failure::Failure;
use crate::log::{LogEngine, LogStore, Step};
use crate::{IdentityError, OpenError};

/// Who this node is, as its disk says.
///
/// Source: architecture, sections 7 and 12.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredIdentity {
    /// Drawn at random and on disk before anybody is told.
    pub node: NodeId,
    /// Stable, like `trellis-0`; empty until it is set.
    pub name: String,
    /// The cluster it bound itself to.
    pub cluster: Option<ClusterId>,
    /// The highest run that was ever handed out; 0 before the first.
    pub run: Run,
    /// Whether its cluster has been formed, so that forming is over for ever.
    pub formed: bool,
}

/// How it lies on disk.
#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(fixed64, tag = "1")]
    node: u64,
    #[prost(string, tag = "2")]
    name: String,
    /// Sixteen bytes, big-endian; empty while unbound.
    #[prost(bytes = "vec", tag = "3")]
    cluster: Vec<u8>,
    #[prost(uint64, tag = "4")]
    run: u64,
    #[prost(bool, tag = "5")]
    formed: bool,
}

const NAME: &str = "identity";

/// Changes who this node is, on disk first. Clones are the same identity.
///
/// Every change blocks for one sync; a change that can't be written stops the process.
#[derive(Clone)]
pub struct IdentityStore {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Arc<dyn LogEngine>,
    log: LogStore,
    failure: Failure,
    present: Mutex<StoredIdentity>,
}

impl IdentityStore {
    /// Reads the identity, or draws one and writes it down.
    pub(crate) fn open(
        engine: Arc<dyn LogEngine>,
        log: LogStore,
        failure: Failure,
        damaged: impl Fn(io::Error) -> OpenError,
    ) -> Result<Self, OpenError> {
        let read = engine
            .named(NAME)
            .and_then(|raw| raw.map(|raw| decode(&raw)).transpose());
        let present = match read.map_err(&damaged)? {
            Some(identity) => identity,
            None if !log.is_virgin() => {
                return Err(damaged(codec::invalid("a log without an identity")));
            }
            None => {
                let drawn = StoredIdentity {
                    // 0 is nobody.
                    node: NodeId(rand::random_range(1..=u64::MAX)),
                    name: String::new(),
                    cluster: None,
                    run: Run(0),
                    formed: false,
                };
                write(engine.as_ref(), &drawn).map_err(damaged)?;
                drawn
            }
        };
        let shared = Shared {
            engine,
            log,
            failure,
            present: Mutex::new(present),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Whether nobody has an identity in this log yet.
    pub(crate) fn is_new(engine: &dyn LogEngine) -> io::Result<bool> {
        Ok(engine.named(NAME)?.is_none())
    }

    /// As of now.
    pub fn get(&self) -> StoredIdentity {
        self.shared.present.lock().clone()
    }

    /// A run that was never used before: for a start, and for each new origin (architecture,
    /// section 7).
    ///
    /// # Errors
    ///
    /// It could not be written; the process is about to end.
    pub fn next_run(&self) -> io::Result<Run> {
        self.change(|identity| identity.run = Run(identity.run.0 + 1))
            .map(|identity| identity.run)
    }

    /// Binds this node to a cluster, once: the same one again changes nothing.
    ///
    /// # Errors
    ///
    /// [`IdentityError::OtherCluster`] if it is bound to another; [`IdentityError::Io`].
    pub fn bind(&self, cluster: ClusterId) -> Result<(), IdentityError> {
        match self.get().cluster {
            Some(bound) if bound == cluster => Ok(()),
            Some(bound) => Err(IdentityError::OtherCluster {
                bound,
                asked: cluster,
            }),
            None => {
                self.change(|identity| identity.cluster = Some(cluster))?;
                Ok(())
            }
        }
    }

    /// Takes the binding back, so that the node can be bound to another cluster: the way out for a
    /// node whose cluster was never formed.
    ///
    /// # Errors
    ///
    /// [`IdentityError::HasLog`] once it has or had a log entry; [`IdentityError::Io`].
    pub fn unbind(&self) -> Result<(), IdentityError> {
        if !self.shared.log.is_virgin() {
            return Err(IdentityError::HasLog);
        }
        self.change(|identity| {
            identity.cluster = None;
            identity.formed = false;
        })?;
        Ok(())
    }

    /// The name by which configuration and other nodes know it.
    ///
    /// # Errors
    ///
    /// It could not be written; the process is about to end.
    pub fn set_name(&self, name: &str) -> io::Result<()> {
        if self.get().name != name {
            self.change(|identity| name.clone_into(&mut identity.name))?;
        }
        Ok(())
    }

    /// The cluster is formed: this node has seen its first membership.
    ///
    /// # Errors
    ///
    /// It could not be written; the process is about to end.
    pub fn set_formed(&self) -> io::Result<()> {
        if !self.get().formed {
            self.change(|identity| identity.formed = true)?;
        }
        Ok(())
    }

    fn change(&self, how: impl FnOnce(&mut StoredIdentity)) -> io::Result<StoredIdentity> {
        self.shared.failure.check()?;
        let mut present = self.shared.present.lock();
        let mut changed = present.clone();
        how(&mut changed);
        if let Err(error) = write(self.shared.engine.as_ref(), &changed) {
            let what = "the node's identity can't be written";
            return Err(self.shared.failure.because(what, &error));
        }
        *present = changed.clone();
        Ok(changed)
    }
}

fn write(engine: &dyn LogEngine, identity: &StoredIdentity) -> io::Result<()> {
    let cluster = identity
        .cluster
        .map(|cluster| cluster.0.to_be_bytes().to_vec());
    let record = Record {
        node: identity.node.0,
        name: identity.name.clone(),
        cluster: cluster.unwrap_or_default(),
        run: identity.run.0,
        formed: identity.formed,
    };
    engine.write(&[Step::Name {
        name: NAME,
        value: record.encode_to_vec(),
    }])
}

fn decode(raw: &[u8]) -> io::Result<StoredIdentity> {
    let record = Record::decode(raw).map_err(codec::invalid)?;
    let cluster = match record.cluster.as_slice() {
        [] => None,
        bytes => {
            Some(ClusterId(u128::from_be_bytes(bytes.try_into().map_err(
                |_| codec::invalid("a cluster id of a wrong length"),
            )?)))
        }
    };
    if record.node == 0 {
        return Err(codec::invalid("an identity without a node id"));
    }
    Ok(StoredIdentity {
        node: NodeId(record.node),
        name: record.name,
        cluster,
        run: Run(record.run),
        formed: record.formed,
    })
}
