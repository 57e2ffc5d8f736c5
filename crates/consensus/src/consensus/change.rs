//! Who takes part, and who leads.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
};

use openraft::{
    ChangeMembers,
    async_runtime::watch::WatchReceiver,
    errors::{ClientWriteError, InitializeError, RaftError},
    raft::{ClientWriteResponse, TransferLeaderRequest},
};
use tokio::time::timeout;
use trellis_types::NodeId;

use super::Consensus;
use crate::{
    ChangeError, Member,
    raft::{Contact, LogId, TypeConfig},
};

impl Consensus {
    /// Forms a cluster of `members`, this node among them, if its log is empty.
    ///
    /// # Errors
    ///
    /// [`ChangeError::Refused`] if there is a log already.
    pub async fn initialize(&self, members: Vec<Member>) -> Result<(), ChangeError> {
        let members: BTreeMap<_, _> = members
            .into_iter()
            .map(|member| (member.id, Contact::from(member)))
            .collect();
        self.check_started().ok_or(ChangeError::Stopped)?;
        let formed = timeout(
            self.0.settings.change_timeout,
            self.0.raft.initialize(members),
        );
        match formed.await.map_err(|_| ChangeError::Unknown)? {
            Ok(()) => Ok(()),
            Err(RaftError::APIError(InitializeError::NotAllowed(error))) => {
                Err(ChangeError::Refused(error.to_string()))
            }
            Err(RaftError::APIError(InitializeError::NotInMembers(error))) => {
                Err(ChangeError::Refused(error.to_string()))
            }
            Err(RaftError::Fatal(_)) => Err(ChangeError::Stopped),
        }
    }

    /// Leader only: `member` gets the log from now on but no vote.
    ///
    /// # Errors
    ///
    /// [`ChangeError`].
    pub async fn add_learner(&self, member: Member) -> Result<(), ChangeError> {
        self.change(self.0.raft.add_learner(member.id, member.into(), false))
            .await
    }

    /// Leader only: name and address of a member are those of `member` from now on.
    ///
    /// # Errors
    ///
    /// [`ChangeError`].
    pub async fn update_member(&self, member: Member) -> Result<(), ChangeError> {
        let change = ChangeMembers::SetNodes(BTreeMap::from([(member.id, member.into())]));
        self.change(self.0.raft.change_membership(change, true))
            .await
    }

    /// Leader only: the learner `new` votes from now on, in place of `dead` if given, who is then
    /// no member any more.
    ///
    /// # Errors
    ///
    /// [`ChangeError`].
    pub async fn replace_voter(
        &self,
        dead: Option<NodeId>,
        new: NodeId,
    ) -> Result<(), ChangeError> {
        let mut changes = vec![ChangeMembers::AddVoterIds(BTreeSet::from([new]))];
        changes.extend(dead.map(|dead| ChangeMembers::RemoveVoters(BTreeSet::from([dead]))));
        self.change(
            self.0
                .raft
                .change_membership(ChangeMembers::Batch(changes), false),
        )
        .await
    }

    /// Leader only: `node` is no member any more.
    ///
    /// # Errors
    ///
    /// [`ChangeError`].
    pub async fn remove(&self, node: NodeId) -> Result<(), ChangeError> {
        let nodes = BTreeSet::from([node]);
        let change = match self.membership().is_voter(node) {
            true => ChangeMembers::RemoveVoters(nodes),
            false => ChangeMembers::RemoveNodes(nodes),
        };
        self.change(self.0.raft.change_membership(change, false))
            .await
    }

    /// Leader only: completes a change that a former leader has left half done.
    ///
    /// # Errors
    ///
    /// [`ChangeError`].
    pub async fn finish_joint(&self) -> Result<(), ChangeError> {
        let nothing = ChangeMembers::AddVoterIds(BTreeSet::new());
        self.change(self.0.raft.change_membership(nothing, false))
            .await
    }

    async fn change(
        &self,
        change: impl Future<
            Output = Result<
                ClientWriteResponse<TypeConfig>,
                RaftError<TypeConfig, ClientWriteError<TypeConfig>>,
            >,
        >,
    ) -> Result<(), ChangeError> {
        self.check_started().ok_or(ChangeError::Stopped)?;
        let changed = timeout(self.0.settings.change_timeout, change).await;
        match changed.map_err(|_| ChangeError::Unknown)? {
            Ok(response) => self.shows(response.log_id).await,
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => {
                Err(ChangeError::NotLeader {
                    leader: forward.leader_id,
                })
            }
            Err(RaftError::APIError(ClientWriteError::LogEntryDiscarded(_))) => {
                Err(ChangeError::Unknown)
            }
            Err(RaftError::APIError(error)) => Err(ChangeError::Refused(error.to_string())),
            Err(RaftError::Fatal(_)) => Err(ChangeError::Stopped),
        }
    }

    /// Waits until [`Self::membership`] is at `position`: openraft answers before it tells.
    async fn shows(&self, position: LogId) -> Result<(), ChangeError> {
        let mut server = self.0.raft.server_metrics();
        let shown =
            server.wait_until(|metrics| metrics.membership_config.log_id() >= &Some(position));
        match timeout(self.0.settings.change_timeout, shown).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(ChangeError::Stopped),
            Err(_) => Err(ChangeError::Unknown),
        }
    }

    /// Leader only: hands over to `to`. Returns when it is under way; from then on this leader
    /// takes no proposals.
    ///
    /// # Errors
    ///
    /// [`ChangeError`].
    pub async fn transfer_leader(&self, to: NodeId) -> Result<(), ChangeError> {
        if let Err(forward) = self.0.raft.as_leader() {
            return Err(ChangeError::NotLeader {
                leader: forward.leader_id,
            });
        }
        if !self.membership().is_voter(to) {
            return Err(ChangeError::Refused(format!("{to} does not vote")));
        }
        self.0
            .raft
            .trigger()
            .transfer_leader(to)
            .await
            .map_err(|_| ChangeError::Stopped)
    }

    /// Stands for election at once, as if the leader had asked for it: no lease protects the
    /// leader. Only for when it is known to be gone (architecture, section 14).
    ///
    /// # Errors
    ///
    /// [`ChangeError::Refused`] if the local log is not durable up to its end in time.
    pub async fn stand_with_transfer_flag(&self) -> Result<(), ChangeError> {
        self.check_started().ok_or(ChangeError::Stopped)?;
        let vote = self.0.raft.server_metrics().borrow_watched().vote;
        let flushed = self.0.raft.watch_log_progress().get();
        let last = flushed.and_then(|point| point.last_log_id).or_else(|| {
            // Nothing was written since the start.
            self.0.at_rest.last_log.map(Into::into)
        });
        let request = TransferLeaderRequest::new(vote, self.0.me, last);
        match self.0.raft.handle_transfer_leader(request).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(refused)) => Err(ChangeError::Refused(refused.to_string())),
            Err(_) => Err(ChangeError::Stopped),
        }
    }
}
