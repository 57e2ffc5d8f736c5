use super::fault::Fault;

/// A fault that is in effect.
pub(super) struct Doing {
    pub(super) until: u64,
    pub(super) fault: Fault,
    pub(super) what: String,
    pub(super) houses: Vec<usize>,
    pub(super) undo: Undo,
    pub(super) hindered: u64,
}

/// What ends a fault.
pub(super) enum Undo {
    Start,
    Thaw,
    Links(Vec<(u32, u32)>),
    Weather(Vec<(u32, u32)>),
    Disk,
    Hurry,
    Nothing,
}
