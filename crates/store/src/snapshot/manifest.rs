use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use prost::Message;
use trellis_consensus::{Membership, Position, SnapshotFile};
use trellis_rpc::pb;

use super::pace::Pace;
use crate::codec;
use crate::folder;

/// What a snapshot consists of. Its file is there exactly if the snapshot is whole.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Manifest {
    pub(super) position: Position,
    pub(super) membership: Membership,
    pub(super) files: Vec<SnapshotFile>,
}

const NAME: &str = "manifest";

impl Manifest {
    /// Reads the one in `folder`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// `InvalidData` if it is damaged; else what the disk said.
    pub(super) fn read(folder: &Path) -> io::Result<Option<Self>> {
        let raw = match fs::read(folder.join(NAME)) {
            Ok(raw) => raw,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let (crc, rest) = raw
            .split_first_chunk::<4>()
            .ok_or_else(|| codec::invalid("a manifest that is cut off"))?;
        if crc32c::crc32c(rest) != u32::from_le_bytes(*crc) {
            return Err(codec::invalid("a manifest with a wrong checksum"));
        }
        let manifest = pb::SnapshotManifest::decode(rest).map_err(codec::invalid)?;
        let position = manifest
            .position
            .ok_or_else(|| codec::invalid("a manifest without a position"))?;
        Ok(Some(Self {
            position: position.into(),
            membership: manifest.membership.unwrap_or_default().into(),
            files: manifest
                .files
                .into_iter()
                .map(|file| SnapshotFile {
                    name: file.name,
                    len: file.len,
                    crc32c: file.crc,
                })
                .collect(),
        }))
    }

    /// Writes it into `folder`, durably.
    ///
    /// # Errors
    ///
    /// What the disk said.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let manifest = pb::SnapshotManifest {
            vote: None,
            position: Some(self.position.into()),
            membership: Some((&self.membership).into()),
            files: self
                .files
                .iter()
                .map(|file| pb::SnapshotFile {
                    name: file.name.clone(),
                    len: file.len,
                    crc: file.crc32c,
                })
                .collect(),
        };
        let rest = manifest.encode_to_vec();
        let crc = crc32c::crc32c(&rest).to_le_bytes();
        folder::replace_file(&folder.join(NAME), &[&crc[..], &rest].concat())
    }
}

/// Bytes of a file that are read at once when it is summed.
const READ_BYTES: usize = 256 * 1024;

/// Length and CRC-32C of a file, read at `pace`. One that RocksDB has written to its end is durable
/// already; others are made so on the way.
pub(super) fn sum(path: &Path, is_durable: bool, pace: &mut Pace) -> io::Result<(u64, u32)> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; READ_BYTES];
    let (mut len, mut crc) = (0, 0);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => {
                len += read as u64;
                crc = crc32c::crc32c_append(crc, &buffer[..read]);
                pace.keep(read);
            }
        }
    }
    if !is_durable {
        file.sync_all()?;
    }
    Ok((len, crc))
}

/// Whether a file that a peer names may be made: a plain name, not one that RocksDB would take for
/// something else.
pub(super) fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty()
        && name.len() <= 64
        && !name.starts_with('.')
        && name.bytes().all(plain)
        && !is_scratch(name)
}

/// What RocksDB writes beside the data: no part of a snapshot.
pub(super) fn is_scratch(name: &str) -> bool {
    name == "LOCK" || name.starts_with("LOG") || name.ends_with(".dbtmp") || name.ends_with(".log")
}

/// Files of this kind are written once and never again, so several folders may share them.
pub(super) fn is_immutable(name: &str) -> bool {
    name.ends_with(".sst") || name.ends_with(".blob")
}
