/// The commands that `stats` counts, in the order of its `cmd-…` keys.
///
/// `kick-job`, `reserve-job` and `quit` are counted nowhere. Source: protocol specification, 4.5
/// and 7.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Counted {
    /// `cmd-put`
    Put,
    /// `cmd-peek`
    Peek,
    /// `cmd-peek-ready`
    PeekReady,
    /// `cmd-peek-delayed`
    PeekDelayed,
    /// `cmd-peek-buried`
    PeekBuried,
    /// `cmd-reserve`
    Reserve,
    /// `cmd-reserve-with-timeout`
    ReserveWithTimeout,
    /// `cmd-delete`
    Delete,
    /// `cmd-release`
    Release,
    /// `cmd-use`
    Use,
    /// `cmd-watch`
    Watch,
    /// `cmd-ignore`
    Ignore,
    /// `cmd-bury`
    Bury,
    /// `cmd-kick`
    Kick,
    /// `cmd-touch`
    Touch,
    /// `cmd-stats`
    Stats,
    /// `cmd-stats-job`
    StatsJob,
    /// `cmd-stats-tube`
    StatsTube,
    /// `cmd-list-tubes`
    ListTubes,
    /// `cmd-list-tube-used`
    ListTubeUsed,
    /// `cmd-list-tubes-watched`
    ListTubesWatched,
    /// `cmd-pause-tube`
    PauseTube,
}

impl Counted {
    /// All of them, in the order of `stats`.
    pub const ALL: [Self; 22] = [
        Self::Put,
        Self::Peek,
        Self::PeekReady,
        Self::PeekDelayed,
        Self::PeekBuried,
        Self::Reserve,
        Self::ReserveWithTimeout,
        Self::Delete,
        Self::Release,
        Self::Use,
        Self::Watch,
        Self::Ignore,
        Self::Bury,
        Self::Kick,
        Self::Touch,
        Self::Stats,
        Self::StatsJob,
        Self::StatsTube,
        Self::ListTubes,
        Self::ListTubeUsed,
        Self::ListTubesWatched,
        Self::PauseTube,
    ];

    /// Its place in [`Self::ALL`], for counters kept in an array.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its key in `stats`.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Put => "cmd-put",
            Self::Peek => "cmd-peek",
            Self::PeekReady => "cmd-peek-ready",
            Self::PeekDelayed => "cmd-peek-delayed",
            Self::PeekBuried => "cmd-peek-buried",
            Self::Reserve => "cmd-reserve",
            Self::ReserveWithTimeout => "cmd-reserve-with-timeout",
            Self::Delete => "cmd-delete",
            Self::Release => "cmd-release",
            Self::Use => "cmd-use",
            Self::Watch => "cmd-watch",
            Self::Ignore => "cmd-ignore",
            Self::Bury => "cmd-bury",
            Self::Kick => "cmd-kick",
            Self::Touch => "cmd-touch",
            Self::Stats => "cmd-stats",
            Self::StatsJob => "cmd-stats-job",
            Self::StatsTube => "cmd-stats-tube",
            Self::ListTubes => "cmd-list-tubes",
            Self::ListTubeUsed => "cmd-list-tube-used",
            Self::ListTubesWatched => "cmd-list-tubes-watched",
            Self::PauseTube => "cmd-pause-tube",
        }
    }
}
