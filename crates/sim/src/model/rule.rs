use clap::ValueEnum;

/// A rule of the protocol that can be dropped, to see that something notices.
///
/// Rules of the machine are dropped by [`law`](super::law), which stands between the log and the
/// real machine; rules of an origin by the real origin's `model` feature; rules of the leader and
/// of streams where this model plays them.
///
/// Not among them, because dedupe and the refusal of holes make up for it: that a leader which steps
/// down forgets what it had queued. Source: architecture, sections 5 to 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Rule {
    /// Once handed to any leader, a batch's seq and bytes never change.
    Immutable,
    /// A batch that would leave a hole is refused.
    Holes,
    /// A batch that was carried out before is skipped.
    Dedupe,
    /// Batches of an origin that is not open are refused: only OpenOrigin makes origins.
    Unopened,
    /// CloseSession is never Skipped.
    ExemptClose,
    /// EndWait is never Skipped.
    ExemptEndWait,
    /// TubeRef is never Skipped.
    ExemptTubeRef,
    /// Once a command of a session is Skipped, all later ones in that batch are.
    AllLater,
    /// Nothing of a session is sent in a later batch while a reserve of it may be parked.
    HoldBack,
    /// OpenOrigin with a run not above the highest known is ignored.
    HigherRun,
    /// The highest run is remembered when its origin ends.
    HighestRemembered,
    /// A repeated OpenOrigin changes nothing.
    RepeatedOpen,
    /// ResumeOrigin offers ready jobs to the origin's waiters.
    ResumeOffers,
    /// Waiters of a suspended origin are passed over, and its reserves park.
    PassedOver,
    /// At CloseSession the wait goes before the holds return.
    CloseWaitFirst,
    /// At the end of an origin all waits go before any hold returns.
    EndWaitsFirst,
    /// When an entry fails, every origin with a batch in it is told.
    DoubtEvery,
    /// When an entry fails, its origins are told at all.
    Doubt,
    /// A new stream starts by sending again everything that is not applied.
    ResendAll,
    /// What a half-closed session submits after its EndWait carries time-out 0.
    HalfClosedPolls,
    /// A node whose state a snapshot replaced fences.
    SnapshotFences,
    /// A poll is answered without the log only from state as new as a read index.
    PollReadIndex,
    /// A USING is answered at once only if no TubeRef of that tube is outstanding.
    SureReference,
    /// Listeners open when the node has applied its own OpenOrigin.
    OpenWhenApplied,
}

impl Rule {
    /// All of them, in the order of the table.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }
}
