//! Bugs on purpose: classics of other systems, each a line in the product, so that the suites can
//! show that they would find them.
//!
//! No product has them: without the feature `seeded-bugs`, which only `cargo xtask seeded-bugs` asks
//! for, [`planted`] is `false` before anything is compiled. With it the environment variable
//! `SEEDED_BUG` chooses one by name for the life of the process.

macro_rules! bugs {
    ($($bug:ident { $name:literal, does: $does:literal, like: $like:literal, })*) => {
        /// A bug that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Bug {
            $(
                #[doc = $does]
                #[doc = ""]
                #[doc = $like]
                $bug,
            )*
        }

        impl Bug {
            /// All of them, in the order of the report.
            pub const ALL: &[Self] = &[$(Self::$bug),*];

            /// How `SEEDED_BUG` and the report call it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$bug => $name,)*
                }
            }

            /// What the product does then, in a sentence.
            pub fn does(self) -> &'static str {
                match self {
                    $(Self::$bug => $does,)*
                }
            }

            /// What comes of it, and where it was seen.
            pub fn like(self) -> &'static str {
                match self {
                    $(Self::$bug => $like,)*
                }
            }
        }
    };
}

bugs! {
    DedupeNotInSnapshot {
        "dedupe-not-in-snapshot",
        does: "The rows of a machine do not hold the last batch of an origin.",
        like: "A batch that is sent again after a restart is carried out twice: deduplication that only memory knows.",
    }
    IdCounterNotInSnapshot {
        "id-counter-not-in-snapshot",
        does: "The next job id is taken from the jobs that are there.",
        like: "Ids are given out again after a restart: MySQL bug 199.",
    }
    MapOrderInApply {
        "map-order-in-apply",
        does: "Holds of a closed session return in an order that each process draws.",
        like: "Replicas part without an error: a hash map walked through inside a replicated state machine.",
    }
    GrantToDeadSession {
        "grant-to-dead-session",
        does: "A closed session stays in line.",
        like: "A job is handed to a client that is gone: consumers left behind by a closed connection.",
    }
    HoldsBeforeWaits {
        "holds-before-waits",
        does: "When an origin ends its holds return while it still waits.",
        like: "A dead node swallows its own jobs again: a lease taken apart in the wrong order.",
    }
    SuspendedWaitsOffered {
        "suspended-waits-offered",
        does: "Waiters of a silent node are offered jobs.",
        like: "Messages pushed to a consumer behind a partition.",
    }
    ResumeOffersNothing {
        "resume-offers-nothing",
        does: "A node that is back is offered nothing of what became ready meanwhile.",
        like: "A consumer that hangs beside a full queue after a fail-over.",
    }
    StaleOwnerSettles {
        "stale-owner-settles",
        does: "Who does not hold a job may release, bury or touch it in the hands of another.",
        like: "A lock without a fencing token: the locks of etcd, Jepsen 2020.",
    }
    TtrNotInSnapshot {
        "ttr-not-in-snapshot",
        does: "Holds that come from a snapshot have no end.",
        like: "A lease without an end after a restart: timers that only memory knows.",
    }
    BatchHoleAccepted {
        "batch-hole-accepted",
        does: "A batch is carried out although one before it is missing.",
        like: "Operations overtake each other when they are sent again: a producer without a sequence check.",
    }
    AcknowledgedBeforeFsync {
        "acknowledged-before-fsync",
        does: "The log says that an entry is durable before it is.",
        like: "Acknowledged writes lost at a power cut: NATS JetStream, Jepsen 2025.",
    }
    FsyncSkipped {
        "fsync-skipped",
        does: "The log is written and not synced.",
        like: "The same, one layer below: write-ahead logs synced once a second.",
    }
    FsyncErrorTrusted {
        "fsync-error-trusted",
        does: "A write of the log that failed is done again, and believed.",
        like: "Pages that a failed fsync dropped: PostgreSQL 2018; Rebello et al., ATC 2020.",
    }
    VoteNotPersisted {
        "vote-not-persisted",
        does: "A vote is given and not stored.",
        like: "Two leaders in one term: against the first rule of Raft's figure 2.",
    }
    AppliedIndexNotAtomic {
        "applied-index-not-atomic",
        does: "The applied index is written behind the state, in a write of its own.",
        like: "Entries applied twice after a crash: etcd issue 13766.",
    }
    LogHoleAccepted {
        "log-hole-accepted",
        does: "An append that leaves a hole in the log is taken.",
        like: "A leader's failed read becomes a hole on its followers: openraft issue 1795.",
    }
    TornTailInTheMiddle {
        "torn-tail-in-the-middle",
        does: "Damage anywhere in the log is taken for a torn tail.",
        like: "Committed entries dropped silently: Alagappan et al., FAST 2018.",
    }
    PurgeBeforeDurable {
        "purge-before-durable",
        does: "The log is purged although no state on disk covers it.",
        like: "Nothing left to replay after a power cut.",
    }
    StateAheadOfLog {
        "state-ahead-of-log",
        does: "The state is written before its entries are in the local log.",
        like: "A node whose state holds what no log has any more.",
    }
    SnapshotNotChecked {
        "snapshot-not-checked",
        does: "A snapshot is taken in whatever its checksums say.",
        like: "A damaged snapshot replaces a sound state: NATS issue 7556.",
    }
    RemovedMemberVotes {
        "removed-member-votes",
        does: "A membership with one node less is not stored.",
        like: "A member that is none counts for a majority after a restart: openraft issue 1808.",
    }
    WallClockOfLeader {
        "wall-clock-of-leader",
        does: "A new leader takes the time from its wall clock.",
        like: "A stepped clock ends leases at once or never, at the next fail-over.",
    }
    IsolatedLeaderServes {
        "isolated-leader-serves",
        does: "A leader that no majority acknowledges goes on as if one did.",
        like: "An old leader that serves: etcd issue 20418.",
    }
    SleepingLeaderExpires {
        "sleeping-leader-expires",
        does: "A leader that slept takes its own sleep for the silence of the others.",
        like: "Live leases expired by a node that was paused.",
    }
    ReadWithoutIndex {
        "read-without-index",
        does: "A read is answered from what the node happens to have.",
        like: "Stale reads: etcd and Consul, Jepsen 2014.",
    }
    DeleteBeforeCommit {
        "delete-before-commit",
        does: "A delete is acknowledged when it is sent.",
        like: "A deleted job comes back after a fail-over: an acknowledgement without a majority.",
    }
    TtrLostAtFailover {
        "ttr-lost-at-failover",
        does: "A later leader lets nothing fall due by itself.",
        like: "Time-outs that end with the leader who counted them: etcd issue 9888.",
    }
    StaleDiskVotes {
        "stale-disk-votes",
        does: "A node whose disk is an old copy takes part.",
        like: "Committed entries outvoted by a restored volume.",
    }
}

impl Bug {
    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|bug| bug.name() == name)
    }
}

/// Whether this process has that bug. Never in a product.
#[cfg(not(feature = "seeded-bugs"))]
#[inline(always)]
pub const fn planted(_bug: Bug) -> bool {
    false
}

/// Whether this process has that bug: whether `SEEDED_BUG` names it.
///
/// # Panics
///
/// If `SEEDED_BUG` names no bug: a suite that looks for nothing would find nothing.
#[cfg(feature = "seeded-bugs")]
pub fn planted(bug: Bug) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<Bug>> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let name = std::env::var("SEEDED_BUG").ok()?;
        let known = Bug::named(&name);
        assert!(
            known.is_some(),
            "SEEDED_BUG={name}: there is no bug of that name"
        );
        known
    });
    *chosen == Some(bug)
}

/// [`Bug::MapOrderInApply`]: brings `list` into the order of a hash map, which each map draws anew.
#[cfg(not(feature = "seeded-bugs"))]
#[inline(always)]
pub fn map_order<T>(_list: &mut [T]) {}

/// [`Bug::MapOrderInApply`]: brings `list` into the order of a hash map, which each map draws anew.
#[cfg(feature = "seeded-bugs")]
pub fn map_order<T: std::hash::Hash>(list: &mut [T]) {
    use std::hash::BuildHasher;

    if planted(Bug::MapOrderInApply) {
        let map = std::hash::RandomState::new();
        list.sort_by_cached_key(|item| map.hash_one(item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_has_a_name_of_its_own() {
        for bug in Bug::ALL {
            assert_eq!(Bug::named(bug.name()), Some(*bug));
        }
    }

    #[cfg(not(feature = "seeded-bugs"))]
    #[test]
    fn a_product_has_none_of_them() {
        // Known before anything runs: the compiler removes what stands behind it.
        const { assert!(!planted(Bug::FsyncSkipped)) };
        assert!(Bug::ALL.iter().all(|bug| !planted(*bug)));
    }
}
