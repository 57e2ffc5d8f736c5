//! Tube names and bodies: edges 31 to 53.

use trellis_types::{Seconds, TubeName};
use trellis_wire::beanstalk::{Counted, Decoder, Refusal, Request, Step};

use crate::*;

#[test]
fn edge_31_the_alphabet_of_tube_names() {
    for name in ["A-Za-z09-+/;.$_()", "a-", "0", "default"] {
        assert_eq!(
            line(&format!("use {name}")),
            Step::Request(Request::Use(tube(name)))
        );
    }
    assert_eq!(line("use -a"), bad_format());
}

#[test]
fn edge_32_any_other_byte_in_a_name_is_a_bad_format() {
    for byte in (1..=255u8).filter(|byte| !TubeName::allows(*byte)) {
        for word in ["use", "watch", "ignore", "stats-tube"] {
            let text = [word.as_bytes(), b" a", &[byte], b"b\r\n"].concat();
            assert_eq!(said(&text), [bad_format()], "{word} {byte:#x}");
        }
        let text = [b"pause-tube a", &[byte][..], b"b 0\r\n"].concat();
        assert_eq!(said(&text), [bad_format()], "pause-tube {byte:#x}");
    }
}

#[test]
fn edge_33_200_bytes_is_the_longest_name() {
    let (longest, longer) = ("n".repeat(200), "n".repeat(201));
    assert_eq!(
        line(&format!("use {longest}")),
        Step::Request(Request::Use(tube(&longest)))
    );
    for word in ["use", "watch", "ignore", "stats-tube"] {
        assert_eq!(line(&format!("{word} {longer}")), bad_format(), "{word}");
    }
    assert_eq!(
        line(&format!("pause-tube {longer} 0")),
        refuse(Refusal::BadFormat, Some(Counted::PauseTube))
    );
}

#[test]
fn edge_34_the_longest_legal_command() {
    let name = "n".repeat(200);
    let text = format!("pause-tube {name} 4294967295");
    assert_eq!(text.len() + 2, 224);
    assert_eq!(
        line(&text),
        Step::Request(Request::PauseTube {
            tube: tube(&name),
            delay: Seconds(u32::MAX)
        })
    );
}

#[test]
fn edge_35_exactly_one_space_before_a_name() {
    all(
        &[
            "use  two",
            "watch a b",
            "watch a 5",
            "ignore a ",
            "stats-tube  a",
        ],
        bad_format,
    );
}

#[test]
fn edge_37_a_body_may_be_empty() {
    assert_eq!(said(b"put 0 0 1 0\r\n\r\n"), [put(0, 0, 1, b"")]);
}

#[test]
fn edge_38_a_body_is_opaque() {
    assert_eq!(
        said(b"put 0 0 1 6\r\na\r\n\0\r\n\r\n"),
        [put(0, 0, 1, b"a\r\n\0\r\n")]
    );
}

#[test]
fn edge_39_a_body_of_exactly_the_limit_is_accepted() {
    let body = vec![b'b'; 65_535];
    let text = [b"put 0 0 1 65535\r\n", &body[..], b"\r\n"].concat();
    assert_eq!(said(&text), [put(0, 0, 1, &body)]);

    let body = vec![b'b'; 65_536];
    let text = [b"put 0 0 1 65536\r\n", &body[..], b"\r\nlist-tube-used\r\n"].concat();
    assert_eq!(
        said(&text),
        [refuse(Refusal::JobTooBig, Some(Counted::Put)), used()]
    );
}

#[test]
fn edge_40_too_big_is_said_only_after_everything_was_swallowed() {
    let mut decoder = Decoder::new(10);
    decoder.feed(b"put 0 0 1 100000\r\n");
    assert_eq!(decoder.step(), Step::NeedMore);
    for _ in 0..1_000 {
        decoder.feed(&[b'x'; 100]);
        assert_eq!(decoder.step(), Step::NeedMore);
        assert_eq!(decoder.buffered(), 0, "nothing of it is kept");
        assert_eq!(decoder.pending_body(), None, "nor is it waited for");
    }
    // The trailer is not checked.
    decoder.feed(b"yylist-tube-used\r\n");
    let too_big = refuse(Refusal::JobTooBig, Some(Counted::Put));
    assert_eq!(drain(&mut decoder), [too_big, used()]);
}

/// Nobody sends 4 GiB in a test; that the line takes no memory is the point.
#[test]
fn edge_40_the_largest_announcement_costs_nothing() {
    let mut decoder = Decoder::new(u32::MAX);
    decoder.feed(b"put 0 0 1 4294967295\r\nhello");
    assert_eq!(decoder.step(), Step::NeedMore);
    assert_eq!(decoder.body_announced(), Some(u32::MAX));
    assert_eq!(decoder.pending_body(), Some(u32::MAX as usize + 2 - 5));
    assert!(decoder.buffer_mut().capacity() < 1_024);
}

#[test]
fn edge_41_the_size_is_checked_before_trailing_garbage() {
    let text = [
        b"put 0 0 1 70000 zzz\r\n",
        &[b'x'; 70_002][..],
        b"list-tube-used\r\n",
    ]
    .concat();
    assert_eq!(
        said(&text),
        [refuse(Refusal::JobTooBig, Some(Counted::Put)), used()]
    );
}

#[test]
fn edge_42_a_wrong_trailer_takes_two_bytes_and_no_more() {
    let steps = said(b"put 0 0 1 3\r\nabcdef\r\n");
    assert_eq!(
        steps,
        [refuse(Refusal::ExpectedCrlf, Some(Counted::Put)), unknown()]
    );
}

#[test]
fn edge_43_a_short_body_swallows_the_beginning_of_the_next_line() {
    let steps = said(b"put 0 0 1 5\r\nabc\r\nlist-tube-used\r\n");
    assert_eq!(
        steps,
        [refuse(Refusal::ExpectedCrlf, Some(Counted::Put)), unknown()]
    );
}

#[test]
fn edge_44_a_malformed_put_line_does_not_swallow_the_body() {
    let steps = said(b"put 0 0 1 1 9\r\na\r\n");
    assert_eq!(
        steps,
        [refuse(Refusal::BadFormat, Some(Counted::Put)), unknown()]
    );
}

#[test]
fn edge_45_a_put_counts_as_soon_as_its_four_numbers_parse() {
    assert_eq!(
        line("put 0 0 1 1x"),
        refuse(Refusal::BadFormat, Some(Counted::Put))
    );
    assert_eq!(
        line("put 0 0 1 1 "),
        refuse(Refusal::BadFormat, Some(Counted::Put))
    );
    assert_eq!(line("put 0 0 1 x"), bad_format());
    let Step::Request(request) = &said(b"put 0 0 1 0\r\n\r\n")[0] else {
        panic!("no request")
    };
    assert_eq!(request.counted(), Some(Counted::Put));
}

#[test]
fn edge_47_only_a_wrong_trailer_makes_a_producer_of_a_refused_put() {
    assert!(Refusal::ExpectedCrlf.makes_producer());
    for refusal in [
        Refusal::BadFormat,
        Refusal::UnknownCommand,
        Refusal::JobTooBig,
    ] {
        assert!(!refusal.makes_producer(), "{refusal:?}");
    }
}

#[test]
fn edge_53_five_hundred_pipelined_puts() {
    let mut bytes = Vec::new();
    for number in 0..500 {
        bytes.extend(format!("put {number} 0 1 3\r\nabc\r\n").bytes());
    }
    let expected: Vec<_> = (0..500).map(|number| put(number, 0, 1, b"abc")).collect();
    assert_eq!(said(&bytes), expected);
}
