//! Which counter a line raises: edges 101 and 128.

use trellis_wire::beanstalk::{Counted, Refusal, Step};

use crate::*;

#[test]
fn edge_101_a_bad_name_with_a_good_number_counts_as_pause_tube() {
    assert_eq!(
        line("pause-tube -a 0"),
        refuse(Refusal::BadFormat, Some(Counted::PauseTube))
    );
    all(
        &["pause-tube -a x", "pause-tube , 0", "pause-tube  0"],
        bad_format,
    );
}

/// Also edges 98 and 93: three commands are counted nowhere.
#[test]
fn edge_128_every_request_names_its_own_counter() {
    for (text, counted) in [
        ("peek 1", Some(Counted::Peek)),
        ("peek-ready", Some(Counted::PeekReady)),
        ("peek-delayed", Some(Counted::PeekDelayed)),
        ("peek-buried", Some(Counted::PeekBuried)),
        ("reserve", Some(Counted::Reserve)),
        ("reserve-with-timeout 0", Some(Counted::ReserveWithTimeout)),
        ("delete 1", Some(Counted::Delete)),
        ("release 1 0 0", Some(Counted::Release)),
        ("use a", Some(Counted::Use)),
        ("watch a", Some(Counted::Watch)),
        ("ignore a", Some(Counted::Ignore)),
        ("bury 1 0", Some(Counted::Bury)),
        ("kick 1", Some(Counted::Kick)),
        ("touch 1", Some(Counted::Touch)),
        ("stats", Some(Counted::Stats)),
        ("stats-job 1", Some(Counted::StatsJob)),
        ("stats-tube a", Some(Counted::StatsTube)),
        ("list-tubes", Some(Counted::ListTubes)),
        ("list-tube-used", Some(Counted::ListTubeUsed)),
        ("list-tubes-watched", Some(Counted::ListTubesWatched)),
        ("pause-tube a 0", Some(Counted::PauseTube)),
        ("kick-job 1", None),
        ("reserve-job 1", None),
        ("quit", None),
    ] {
        let Step::Request(request) = line(text) else {
            panic!("{text} was refused")
        };
        assert_eq!(request.counted(), counted, "{text}");
        if let Some(counted) = counted {
            assert_eq!(Counted::ALL[counted.index()], counted);
            let word = text.split(' ').next().unwrap_or_default();
            assert_eq!(counted.key(), format!("cmd-{word}"));
        }
    }
}
