//! However the network cuts the stream, the client said the same thing.

mod property;

use bytes::{Bytes, BytesMut};
use proptest::{collection::vec, prelude::*};
use trellis_types::{JobId, Priority, Seconds, TubeName};
use trellis_wire::beanstalk::{Reply, Request, Step, client::encode_request};

use property::{replies_of, steps_of};

fn tube() -> impl Strategy<Value = TubeName> {
    "[A-Za-z0-9+/;.$_()][A-Za-z0-9+/;.$_()-]{0,199}"
        .prop_map(|text| TubeName::parse(text.as_bytes()).expect("the pattern is the alphabet"))
}

fn body() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        vec(any::<u8>(), 0..40),
        // Bodies that look like the protocol itself.
        Just(b"\r\n\r\nquit\r\n".to_vec()),
        // Long enough to be handed out as a slice of the buffer.
        vec(any::<u8>(), 2_040..2_060),
    ]
    .prop_map(Bytes::from)
}

fn request() -> impl Strategy<Value = Request> {
    let job = || any::<u64>().prop_map(JobId);
    let priority = || any::<u32>().prop_map(Priority);
    let seconds = || any::<u32>().prop_map(Seconds);
    prop_oneof![
        4 => (priority(), seconds(), seconds(), body()).prop_map(|(priority, delay, ttr, body)| {
            Request::Put { priority, delay, ttr, body }
        }),
        1 => tube().prop_map(Request::Use),
        1 => tube().prop_map(Request::Watch),
        1 => tube().prop_map(Request::Ignore),
        1 => tube().prop_map(Request::StatsTube),
        1 => (0..=i32::MAX as u32).prop_map(|s| Request::ReserveWithTimeout(Seconds(s))),
        1 => job().prop_map(Request::ReserveJob),
        1 => job().prop_map(Request::Delete),
        1 => (job(), priority(), seconds())
            .prop_map(|(job, priority, delay)| Request::Release { job, priority, delay }),
        1 => (job(), priority()).prop_map(|(job, priority)| Request::Bury { job, priority }),
        1 => job().prop_map(Request::Touch),
        1 => any::<u32>().prop_map(|bound| Request::Kick { bound }),
        1 => job().prop_map(Request::KickJob),
        1 => job().prop_map(Request::Peek),
        1 => job().prop_map(Request::StatsJob),
        1 => (tube(), seconds()).prop_map(|(tube, delay)| Request::PauseTube { tube, delay }),
        2 => prop::sample::select(vec![
            Request::Reserve,
            Request::PeekReady,
            Request::PeekDelayed,
            Request::PeekBuried,
            Request::Stats,
            Request::ListTubes,
            Request::ListTubesWatched,
            Request::ListTubeUsed,
            Request::Quit,
        ]),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let job = || any::<u64>().prop_map(JobId);
    prop_oneof![
        job().prop_map(Reply::Inserted),
        job().prop_map(Reply::InsertedBuried),
        tube().prop_map(Reply::Using),
        (job(), body()).prop_map(|(job, body)| Reply::Reserved { job, body }),
        (job(), body()).prop_map(|(job, body)| Reply::Found { job, body }),
        body().prop_map(Reply::Ok),
        any::<usize>().prop_map(Reply::Watching),
        any::<u32>().prop_map(Reply::Kicked),
        prop::sample::select(vec![
            Reply::Buried,
            Reply::DeadlineSoon,
            Reply::TimedOut,
            Reply::Deleted,
            Reply::Released,
            Reply::Touched,
            Reply::NotIgnored,
            Reply::KickedJob,
            Reply::Paused,
            Reply::NotFound,
            Reply::OutOfMemory,
            Reply::InternalError,
            Reply::Draining,
            Reply::BadFormat,
            Reply::UnknownCommand,
            Reply::ExpectedCrlf,
            Reply::JobTooBig,
        ]),
    ]
}

/// Everything at once: good lines, bad lines, long lines, bodies with every ending.
fn talk() -> Vec<u8> {
    let mut talk = Vec::new();
    talk.extend_from_slice(b"list-tube-used\r\n\r\nuse a\rb\r\nuse a\nb\r\nquit\0\r\n");
    talk.extend_from_slice(b"put 0 0 1 5\r\nhello\r\nput 1 2 3 0\r\n\r\n");
    talk.extend_from_slice(b"put 0 0 1 3\r\nabcdef\r\nput 0 0 1 9 9\r\nput 0 0 1 30\r\n");
    talk.extend_from_slice(&[b'\r'; 32]);
    for length in [222, 223, 224, 225, 447, 448] {
        talk.extend_from_slice(&vec![b'x'; length]);
        talk.extend_from_slice(b"\r\nlist-tubes\r\n");
        talk.extend_from_slice(&vec![b'\r'; length]);
        talk.extend_from_slice(b"\nstats\r\n");
    }
    talk.extend_from_slice(b"put 7 7 7 20\r\nput 0 0 1 1\r\na\r\nquit\r\nkick 5");
    talk
}

proptest! {
    #[test]
    fn cutting_the_stream_changes_nothing(pieces in vec(1usize..9, 0..40)) {
        prop_assert_eq!(steps_of(&talk(), &pieces, 20), steps_of(&talk(), &[], 20));
    }

    #[test]
    fn what_a_client_encodes_is_what_the_server_decodes(
        requests in vec(request(), 1..12),
        pieces in vec(1usize..900, 0..8),
    ) {
        let mut bytes = BytesMut::new();
        for request in &requests {
            encode_request(request, &mut bytes);
        }
        let expected: Vec<_> = requests.into_iter().map(Step::Request).collect();
        prop_assert_eq!(steps_of(&bytes, &pieces, 65_535), expected);
    }

    #[test]
    fn what_a_server_encodes_is_what_the_client_decodes(
        replies in vec(reply(), 1..12),
        pieces in vec(1usize..900, 0..8),
    ) {
        let mut bytes = BytesMut::new();
        for reply in &replies {
            reply.encode(&mut bytes);
        }
        let expected: Vec<_> = replies.into_iter().map(Ok).collect();
        prop_assert_eq!(replies_of(&bytes, &pieces), expected);
    }
}

#[test]
fn words_that_are_no_reply_are_reported_and_bounded() {
    for line in [
        "",
        "HELLO",
        "INSERTED",
        "INSERTED x",
        "INSERTED 1 ",
        "TIMED_OUT 1",
        "OK -1",
    ] {
        let replies = replies_of(format!("{line}\r\n").as_bytes(), &[]);
        assert!(matches!(replies[..], [Err(_)]), "{line:?} gave {replies:?}");
    }
    assert!(
        matches!(replies_of(b"OK 1\r\nabc", &[])[..], [Err(_)]),
        "a body without its CRLF"
    );
    assert!(
        matches!(replies_of(b"DELETED\n", &[])[..], [Err(_)]),
        "a bare LF"
    );
    assert!(
        matches!(replies_of(&[b'x'; 600], &[])[..], [Err(_)]),
        "a line without end"
    );
}
