//! The list of members that a node keeps beside its data, for people and for whoever is about to
//! clear the folder: it can be read when log and state can't.

use std::fs;
use std::io;
use std::path::Path;

use crate::folder::replace_file;

/// The list's file.
pub(crate) const ROLL: &str = "members";

/// What stands behind the node whose folder it is.
const HERE: &str = "(this node)";

/// One member, as the list names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollEntry {
    /// Its stable name.
    pub name: String,
    /// Its peer address.
    pub address: String,
    /// Whether it votes.
    pub voter: bool,
    /// Whether it is the node whose folder it is.
    pub here: bool,
}

/// Replaces the list in the data folder `dir`, durably.
///
/// # Errors
///
/// What the disk said.
pub fn note_members(dir: &Path, members: &[RollEntry]) -> io::Result<()> {
    let lines = members.iter().map(|member| {
        let role = if member.voter { "voter" } else { "learner" };
        let here = if member.here { HERE } else { "" };
        let line = format!("{} {} {role} {here}", member.name, member.address);
        format!("{}\n", line.trim_end())
    });
    replace_file(&dir.join(ROLL), lines.collect::<String>().as_bytes())
}

/// Whether the node of the data folder `dir` was, when it last looked, the only voter of its
/// cluster: nobody else has its jobs. `false` if there is no list.
pub fn is_alone(dir: &Path) -> bool {
    let Ok(text) = fs::read_to_string(dir.join(ROLL)) else {
        return false;
    };
    let mut voters = text
        .lines()
        .filter(|line| line.split(' ').nth(2) == Some("voter"));
    match (voters.next(), voters.next()) {
        (Some(only), None) => only.ends_with(HERE),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, voter: bool, here: bool) -> RollEntry {
        RollEntry {
            name: name.to_owned(),
            address: format!("{name}:1"),
            voter,
            here,
        }
    }

    #[test]
    fn alone_is_who_is_the_only_voter() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_alone(dir.path()), "nothing is known of an older folder");
        for (members, alone) in [
            (vec![member("a", true, true)], true),
            (
                vec![member("a", true, true), member("b", false, false)],
                true,
            ),
            (
                vec![member("a", true, true), member("b", true, false)],
                false,
            ),
            (
                vec![member("a", true, false), member("b", false, true)],
                false,
            ),
            (vec![], false),
        ] {
            note_members(dir.path(), &members).unwrap();
            assert_eq!(is_alone(dir.path()), alone, "{members:?}");
        }
    }
}
