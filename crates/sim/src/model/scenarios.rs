use super::{
    Faults, Setup,
    setup::Word::{self, Delete, Poll, Put, Release, Reserve, ReserveJob, Use},
};

/// A small world that is explored to its end.
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is.
    pub setup: Setup,
}

/// Everything that two nodes can do to each other with one or two commands a client and one or two
/// things going wrong, by what goes wrong.
pub fn scenarios() -> Vec<Scenario> {
    let none = Faults::default();
    vec![
        scenario(
            "election-and-break",
            [&[Put], &[], &[Reserve], &[]],
            Faults {
                elections: 1,
                breaks: 1,
                ..none
            },
        ),
        scenario(
            "two-elections",
            [&[], &[], &[Put, Put], &[]],
            Faults {
                elections: 2,
                breaks: 1,
                ..none
            },
        ),
        scenario(
            "refused-and-broken",
            [&[], &[], &[Put, Put, Put], &[]],
            Faults {
                refusals: 1,
                breaks: 1,
                ..none
            },
        ),
        scenario(
            "refused-together",
            [&[Put], &[], &[Put, Put], &[]],
            Faults {
                refusals: 1,
                ..none
            },
        ),
        scenario(
            "refused-in-the-log",
            [&[], &[], &[Put, Reserve], &[]],
            Faults {
                refusals: 1,
                elections: 1,
                ..none
            },
        ),
        scenario(
            "behind-a-wait",
            [&[], &[], &[Reserve, Poll, Put], &[Put]],
            Faults {
                hang_ups: 1,
                leaps: 1,
                ..none
            },
        ),
        scenario(
            "half-close-and-snapshot",
            [&[Put], &[], &[Reserve, Reserve], &[]],
            Faults {
                half_closes: 1,
                snapshots: 1,
                ..none
            },
        ),
        scenario(
            "half-close-of-a-pipeline",
            [&[], &[], &[Reserve, Reserve, Put], &[Put]],
            Faults {
                half_closes: 1,
                leaps: 1,
                ..none
            },
        ),
        scenario(
            "crash-and-lease",
            [&[Put], &[], &[Reserve], &[]],
            Faults {
                crashes: 1,
                absences: 1,
                expiries: 1,
                ..none
            },
        ),
        scenario(
            "crash-and-election",
            [&[], &[], &[Put], &[]],
            Faults {
                crashes: 1,
                elections: 1,
                ..none
            },
        ),
        scenario(
            "fence-lease-and-late-open",
            [&[], &[], &[Put, Reserve], &[]],
            Faults {
                fences: 1,
                absences: 1,
                expiries: 1,
                late_opens: 1,
                ..none
            },
        ),
        scenario(
            "fence-election-and-late-open",
            [&[], &[], &[Put], &[]],
            Faults {
                fences: 1,
                elections: 1,
                late_opens: 1,
                ..none
            },
        ),
        scenario(
            "ttr-and-release",
            [&[Put, Delete(1)], &[], &[Reserve, Release(1)], &[]],
            Faults { leaps: 1, ..none },
        ),
        scenario(
            "suspended-and-expired",
            [&[Put], &[], &[Reserve], &[]],
            Faults {
                absences: 1,
                suspensions: 1,
                expiries: 1,
                ..none
            },
        ),
        scenario(
            "suspended-twice",
            [&[Put], &[], &[Reserve], &[]],
            Faults {
                absences: 2,
                suspensions: 2,
                ..none
            },
        ),
        scenario(
            "suspended-and-elected",
            [&[Put], &[], &[Reserve, ReserveJob(1)], &[]],
            Faults {
                absences: 1,
                suspensions: 1,
                elections: 1,
                ..none
            },
        ),
        scenario(
            "tube-references",
            [&[], &[], &[Reserve, Use], &[Use]],
            Faults {
                hang_ups: 2,
                snapshots: 1,
                ..none
            },
        ),
        scenario(
            "polls",
            [&[Put], &[], &[Poll, Put], &[]],
            Faults {
                elections: 1,
                breaks: 1,
                ..none
            },
        ),
        scenario(
            "no-leader-in-time",
            [&[], &[], &[Put, Reserve], &[]],
            Faults {
                elections: 1,
                overdue: 1,
                ..none
            },
        ),
    ]
}

/// Scripts are those of both clients of the first node, then of the second.
fn scenario(name: &'static str, scripts: [&[Word]; 4], faults: Faults) -> Scenario {
    let [a, b, c, d] = scripts.map(<[Word]>::to_vec);
    Scenario {
        name,
        setup: Setup {
            scripts: [[a, b], [c, d]],
            faults,
            pipeline: 3,
            log: 4,
            dropped: None,
        },
    }
}
