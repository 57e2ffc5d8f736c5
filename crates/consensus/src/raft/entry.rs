use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use openraft::{EntryPayload, entry::RaftEntry, vote::RaftLeaderId};
use prost::Message;
use trellis_rpc::pb::{self, log_entry};
use trellis_types::{NodeId, Timestamp};

use super::{Contact, LeaderId, LogId};
use crate::{Membership, Payload, Position};

/// Version of the encoding; another one is refused (architecture, section 13).
const VERSION: u32 = 1;
/// Tag of field 1, and how long that field is: the checksum stands first, over all the rest.
const CRC_TAG: u8 = 0x0d;
const CRC_BYTES: usize = 5;

/// One line of the log. It is encoded once in its life: by the leader's log when it is appended;
/// everywhere else it comes in those same bytes, and its payload is slices of them.
#[derive(Clone)]
pub struct Entry {
    log_id: LogId,
    payload: EntryPayload<Payload, NodeId, Contact>,
    encoded: Option<Bytes>,
}

/// Why some bytes are no entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEntry {
    /// The bytes are not those that were encoded.
    #[error("an entry of the log has a wrong checksum")]
    Checksum,
    /// A newer binary made it.
    #[error("an entry of the log has version {0}, this binary knows {VERSION}")]
    Version(u32),
    /// It says something impossible.
    #[error("an entry of the log cannot be read: {0}")]
    Content(String),
}

impl Entry {
    /// Where it stands.
    pub fn position(&self) -> Position {
        self.log_id.into()
    }

    /// What it carries.
    pub fn payload(&self) -> &EntryPayload<Payload, NodeId, Contact> {
        &self.payload
    }

    /// Takes out what it carries.
    pub fn into_payload(self) -> EntryPayload<Payload, NodeId, Contact> {
        self.payload
    }

    /// The bytes for log and wire. From the first call on the entry and its clones share them, and
    /// what they were made of is given back.
    pub fn seal(&mut self) -> Bytes {
        if let Some(encoded) = &self.encoded {
            return encoded.clone();
        }
        let encoded = self.encode();
        if let Ok(sealed) = Self::parse(encoded.clone()) {
            *self = sealed;
        }
        encoded
    }

    /// The bytes for log and wire; made anew if the entry is not sealed.
    pub fn to_bytes(&self) -> Bytes {
        self.encoded.clone().unwrap_or_else(|| self.encode())
    }

    /// Reads what [`Self::seal`] made; the payload is slices of `encoded`.
    ///
    /// # Errors
    ///
    /// [`BadEntry`].
    pub fn decode(encoded: Bytes) -> Result<Self, BadEntry> {
        let Some(([CRC_TAG, crc @ ..], rest)) = encoded.split_first_chunk::<CRC_BYTES>() else {
            return Err(BadEntry::Checksum);
        };
        if crc32c::crc32c(rest) != u32::from_le_bytes(*crc) {
            return Err(BadEntry::Checksum);
        }
        Self::parse(encoded)
    }

    fn encode(&self) -> Bytes {
        let payload = match &self.payload {
            EntryPayload::Blank => log_entry::Payload::Blank(pb::Blank {}),
            EntryPayload::Normal(payload) => log_entry::Payload::Commands(pb::Commands {
                at: payload.at.0,
                batches: payload.batches.clone(),
                leader: payload.leader.clone(),
            }),
            EntryPayload::Membership(membership) => {
                log_entry::Payload::Membership((&Membership::from(membership)).into())
            }
        };
        let message = pb::LogEntry {
            crc: 0, // Left out by the encoder; put in front below.
            version: VERSION,
            id: Some(Position::from(self.log_id).into()),
            payload: Some(payload),
        };
        let mut buffer = BytesMut::with_capacity(CRC_BYTES + message.encoded_len());
        buffer.put_u8(CRC_TAG);
        buffer.put_u32_le(0);
        message.encode_raw(&mut buffer);
        let crc = crc32c::crc32c(&buffer[CRC_BYTES..]);
        buffer[1..CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
        buffer.freeze()
    }

    fn parse(encoded: Bytes) -> Result<Self, BadEntry> {
        let content = |what: &str| BadEntry::Content(what.into());
        let message = pb::LogEntry::decode(encoded.clone())
            .map_err(|error| BadEntry::Content(error.to_string()))?;
        if message.version != VERSION {
            return Err(BadEntry::Version(message.version));
        }
        let position: Position = message.id.ok_or_else(|| content("no position"))?.into();
        let payload = match message.payload.ok_or_else(|| content("no payload"))? {
            log_entry::Payload::Blank(_) => EntryPayload::Blank,
            log_entry::Payload::Commands(commands) => EntryPayload::Normal(Payload {
                at: Timestamp(commands.at),
                batches: commands.batches,
                leader: commands.leader,
            }),
            log_entry::Payload::Membership(membership) => EntryPayload::Membership(
                Membership::from(membership)
                    .to_raft()
                    .map_err(BadEntry::Content)?,
            ),
        };
        Ok(Self {
            log_id: position.into(),
            payload,
            encoded: Some(encoded),
        })
    }
}

impl RaftEntry for Entry {
    type CommittedLeaderId = <LeaderId as RaftLeaderId>::Committed;
    type Payload = EntryPayload<Payload, NodeId, Contact>;

    fn new(log_id: LogId, payload: Self::Payload) -> Self {
        Self {
            log_id,
            payload,
            encoded: None,
        }
    }

    fn log_id_parts(&self) -> (&LeaderId, u64) {
        (&self.log_id.leader_id, self.log_id.index)
    }

    fn set_log_id(&mut self, new: LogId) {
        self.log_id = new;
        self.encoded = None;
    }

    fn get_membership(&self) -> Option<openraft::Membership<NodeId, Contact>> {
        match &self.payload {
            EntryPayload::Membership(membership) => Some(membership.clone()),
            _ => None,
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.position(), self.payload)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn position() -> LogId {
        Position {
            term: 3,
            leader: NodeId(u64::MAX),
            index: 1 << 40,
        }
        .into()
    }

    fn commands() -> Entry {
        let payload = Payload {
            at: Timestamp(1_700_000_000_000),
            batches: vec![Bytes::from_static(b"one batch"), Bytes::new()],
            leader: vec![Bytes::from_static(b"tick")],
        };
        Entry::new(position(), EntryPayload::Normal(payload))
    }

    fn membership() -> Entry {
        let member = Contact {
            name: "a".into(),
            address: "a:1".into(),
        };
        let membership = openraft::Membership::new(
            vec![BTreeSet::from([NodeId(1)])],
            BTreeMap::from([(NodeId(1), member)]),
        );
        Entry::new(
            position(),
            EntryPayload::Membership(membership.expect("a sound membership")),
        )
    }

    #[test]
    fn every_kind_of_entry_comes_back_as_it_was() {
        let blank = Entry::new(position(), EntryPayload::Blank);
        for entry in [blank, commands(), membership()] {
            let read = Entry::decode(entry.to_bytes()).expect("its own bytes");
            assert_eq!(read.log_id, entry.log_id);
            assert!(read.payload == entry.payload, "{read} is not {entry}");
        }
    }

    #[test]
    fn the_encoding_is_made_once_and_shared() {
        let mut entry = commands();
        let bytes = entry.seal();
        assert_eq!(entry.seal().as_ptr(), bytes.as_ptr());
        assert_eq!(entry.clone().to_bytes().as_ptr(), bytes.as_ptr());
        let EntryPayload::Normal(payload) = &entry.payload else {
            panic!("commands")
        };
        assert!(bytes.as_ptr_range().contains(&payload.batches[0].as_ptr()));
    }

    #[test]
    fn an_entry_that_moves_is_encoded_anew() {
        let mut entry = commands();
        entry.seal();
        let moved = Position {
            term: 4,
            leader: NodeId(1),
            index: 7,
        };
        entry.set_log_id(moved.into());
        assert_eq!(
            Entry::decode(entry.seal()).map(|entry| entry.position()),
            Ok(moved)
        );
    }

    #[test]
    fn a_flipped_bit_is_noticed_wherever_it_is() {
        let sound = commands().to_bytes();
        for bit in 0..sound.len() * 8 {
            let mut bytes = sound.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(
                Entry::decode(bytes.into()).is_err(),
                "bit {bit} went unnoticed"
            );
        }
        for length in 0..sound.len() {
            assert!(
                Entry::decode(sound.slice(..length)).is_err(),
                "{length} bytes passed"
            );
        }
    }
}
