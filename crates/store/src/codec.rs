//! Between Raft's words and the bytes that lie on disk: protobuf with numbered fields, always.

use std::io;

use prost::Message;
use trellis_consensus::raft::{Entry, LeaderId, LogId, VoteOf};
use trellis_consensus::{Membership, Position};
use trellis_rpc::pb;
use trellis_types::NodeId;

/// What entry `frame` is; its checksum is looked at.
pub(crate) fn decode_entry(frame: bytes::Bytes) -> io::Result<Entry> {
    Entry::decode(frame).map_err(invalid)
}

pub(crate) fn log_id(entry: &Entry) -> LogId {
    entry.position().into()
}

pub(crate) fn index(entry: &Entry) -> u64 {
    entry.position().index
}

pub(crate) fn encode_log_id(id: &LogId) -> Vec<u8> {
    encode_position(Position::from(*id))
}

pub(crate) fn decode_log_id(value: &[u8]) -> io::Result<LogId> {
    decode_position(value).map(LogId::from)
}

pub(crate) fn encode_position(position: Position) -> Vec<u8> {
    pb::LogId::from(position).encode_to_vec()
}

pub(crate) fn decode_position(value: &[u8]) -> io::Result<Position> {
    pb::LogId::decode(value)
        .map(Position::from)
        .map_err(invalid)
}

pub(crate) fn encode_vote(vote: &VoteOf) -> Vec<u8> {
    pb::Vote {
        term: vote.leader_id.term,
        node: vote.leader_id.node_id.0,
        committed: vote.committed,
    }
    .encode_to_vec()
}

pub(crate) fn decode_vote(value: &[u8]) -> io::Result<VoteOf> {
    let vote = pb::Vote::decode(value).map_err(invalid)?;
    let leader_id = LeaderId {
        term: vote.term,
        node_id: NodeId(vote.node),
    };
    Ok(VoteOf {
        leader_id,
        committed: vote.committed,
    })
}

pub(crate) fn encode_membership(membership: &Membership) -> Vec<u8> {
    pb::Membership::from(membership).encode_to_vec()
}

pub(crate) fn decode_membership(value: &[u8]) -> io::Result<Membership> {
    pb::Membership::decode(value)
        .map(Membership::from)
        .map_err(invalid)
}

/// What lies on disk is not what was written there.
pub(crate) fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
