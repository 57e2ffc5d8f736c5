use super::super::engine::Step;

/// Behind the last line of a group there is nothing, or this.
pub(super) const NOTHING: u8 = 0;
pub(super) const PUT: u8 = 1;
pub(super) const REMOVE: u8 = 2;
pub(super) const NAME: u8 = 3;

/// Bytes before a frame: kind, index, length.
pub(super) const PUT_HEAD: usize = 1 + 8 + 4;
/// Kind, both ends of the range.
const REMOVE_BYTES: usize = 1 + 8 + 8;
/// Kind, length of name and value.
const NAME_HEAD: usize = 1 + 1 + 4;

/// A step as it lies in a group.
#[derive(Clone, Copy, Debug)]
pub(super) enum Line<'a> {
    Put { index: u64, frame: &'a [u8] },
    Remove { start: u64, end: u64 },
    Name { name: &'a str, value: &'a [u8] },
}

impl<'a> From<&'a Step<'_>> for Line<'a> {
    fn from(step: &'a Step<'_>) -> Self {
        match step {
            Step::Put { index, frame } => Self::Put {
                index: *index,
                frame,
            },
            Step::Remove { range } => Self::Remove {
                start: range.start,
                end: range.end,
            },
            Step::Name { name, value } => Self::Name { name, value },
        }
    }
}

impl Line<'_> {
    /// Bytes that it takes in a group.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Put { frame, .. } => PUT_HEAD + frame.len(),
            Self::Remove { .. } => REMOVE_BYTES,
            Self::Name { name, value } => NAME_HEAD + name.len() + value.len(),
        }
    }

    /// Whether its lengths fit the numbers that say so.
    pub(super) fn fits(&self) -> bool {
        match self {
            Self::Put { frame, .. } => u32::try_from(frame.len()).is_ok(),
            Self::Remove { .. } => true,
            Self::Name { name, value } => {
                u8::try_from(name.len()).is_ok() && u32::try_from(value.len()).is_ok()
            }
        }
    }

    /// Hands its bytes to `put`, in order. It fits.
    pub(super) fn encode(&self, mut put: impl FnMut(&[u8])) {
        match self {
            Self::Put { index, frame } => {
                let mut head = [PUT; PUT_HEAD];
                head[1..9].copy_from_slice(&index.to_le_bytes());
                head[9..].copy_from_slice(&(frame.len() as u32).to_le_bytes());
                put(&head);
                put(frame);
            }
            Self::Remove { start, end } => {
                let mut all = [REMOVE; REMOVE_BYTES];
                all[1..9].copy_from_slice(&start.to_le_bytes());
                all[9..].copy_from_slice(&end.to_le_bytes());
                put(&all);
            }
            Self::Name { name, value } => {
                let mut head = [NAME; NAME_HEAD];
                head[1] = name.len() as u8;
                head[2..].copy_from_slice(&(value.len() as u32).to_le_bytes());
                put(&head);
                put(name.as_bytes());
                put(value);
            }
        }
    }
}
