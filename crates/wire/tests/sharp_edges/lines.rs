//! Lines, words and numbers: edges 1 to 30.

use trellis_types::{JobId, Priority, Seconds, TubeName};
use trellis_wire::beanstalk::{Decoder, Request, Step};

use crate::*;

#[test]
fn edge_1_an_empty_line_is_an_unknown_command() {
    assert_eq!(line(""), unknown());
}

#[test]
fn edge_2_a_line_of_222_characters_is_still_looked_up() {
    assert_eq!(line(&"x".repeat(222)), unknown());
}

#[test]
fn edge_3_a_longer_line_gets_one_bad_format_and_the_next_works() {
    for length in [224, 225, 10_000] {
        let text = format!("{}\r\nlist-tube-used\r\n", "x".repeat(length));
        assert_eq!(said(text.as_bytes()), [bad_format(), used()], "{length}");
    }
}

#[test]
fn edge_4_a_too_long_line_is_not_answered_and_not_kept_while_it_goes_on() {
    let mut decoder = Decoder::new(BODY_BYTES_MAX);
    for _ in 0..1_000 {
        decoder.feed(&[b'x'; 1_000]);
        assert_eq!(decoder.step(), Step::NeedMore);
        assert!(
            decoder.buffered() < 224,
            "{} bytes kept",
            decoder.buffered()
        );
    }
    decoder.feed(b"\r\n");
    assert_eq!(drain(&mut decoder), [bad_format()]);
}

/// The original swallows the line after these; we do not copy that.
#[test]
fn edge_5_a_cr_on_a_multiple_of_224_ends_the_line_like_any_other() {
    for length in [223, 447, 671] {
        let text = format!("{}\r\nlist-tube-used\r\n", "x".repeat(length));
        assert_eq!(said(text.as_bytes()), [bad_format(), used()], "{length}");
    }
}

#[test]
fn edge_6_a_bare_lf_does_not_end_a_line() {
    assert_eq!(said(b"list-tube-used\n"), []);
    assert_eq!(said(b"list-tube-used\n\r\n"), [bad_format()]);
}

/// The original stalls here until 224 bytes have piled up; we do not copy that.
#[test]
fn edge_7_a_lone_cr_does_not_stall_the_connection() {
    assert_eq!(
        said(b"use a\rb\r\nlist-tube-used\r\n"),
        [bad_format(), used()]
    );
    assert_eq!(
        said(b"list-tube-used\r\r\nlist-tube-used\r\n"),
        [bad_format(), used()]
    );
}

#[test]
fn edge_8_a_command_may_come_one_byte_at_a_time() {
    let mut decoder = Decoder::new(BODY_BYTES_MAX);
    for byte in b"list-tube-used\r" {
        decoder.feed(&[*byte]);
        assert_eq!(decoder.step(), Step::NeedMore);
    }
    decoder.feed(b"\n");
    assert_eq!(decoder.step(), used());
}

#[test]
fn edge_9_a_nul_is_a_bad_format_before_the_word_is_looked_at() {
    all(&["use a\0b", "\0", "nosuch\0", "quit\0"], bad_format);
}

#[test]
fn edge_10_a_put_line_with_a_nul_leaves_its_body_as_a_command() {
    assert_eq!(said(b"put 0 0 1 1\0\r\na\r\n"), [bad_format(), unknown()]);
}

#[test]
fn edge_11_words_are_lower_case_and_start_in_column_0() {
    all(
        &[
            "LIST-TUBE-USED",
            "Use a",
            " list-tube-used",
            "\tlist-tube-used",
        ],
        unknown,
    );
}

#[test]
fn edge_12_a_word_with_arguments_needs_its_space() {
    let words = [
        "put", "use", "watch", "ignore", "delete", "release", "bury", "touch", "kick", "kick-job",
        "peek",
    ];
    all(&words, unknown);
    for word in words {
        assert_eq!(line(&format!("{word} ")), bad_format(), "{word}");
    }
}

#[test]
fn edge_13_a_longer_word_without_its_space_is_the_shorter_one_with_a_tail() {
    all(
        &[
            "reserve-with-timeout",
            "reserve-job",
            "stats-job",
            "stats-tube",
            "reservex",
            "statsx",
            "stats-foo",
            "list-tubesx",
        ],
        bad_format,
    );
}

#[test]
fn edge_14_words_that_are_almost_words() {
    all(&["list-tube", "peek-foo"], unknown);
    assert_eq!(line("pause-tube"), bad_format());
}

#[test]
fn edge_15_words_without_arguments_take_none() {
    all(
        &[
            "stats ",
            "reserve ",
            "list-tubes ",
            "list-tube-used x",
            "list-tubes-watched x",
            "peek-ready x",
            "peek-delayed x",
            "peek-buried x",
        ],
        bad_format,
    );
}

#[test]
fn edge_16_quit_is_matched_by_prefix() {
    all(&["quit", "quitx", "quit now"], || {
        Step::Request(Request::Quit)
    });
}

#[test]
fn edge_17_pipelined_commands_come_in_order() {
    assert_eq!(
        said(b"list-tube-used\r\nquit\r\nlist-tube-used\r\n"),
        [used(), Step::Request(Request::Quit), used()],
        "what stands behind the quit is the caller's to drop"
    );
}

#[test]
fn edge_19_extra_spaces_and_leading_zeros_are_accepted() {
    assert_eq!(line("delete  1"), Step::Request(Request::Delete(JobId(1))));
    assert_eq!(line("peek 0001"), Step::Request(Request::Peek(JobId(1))));
    assert_eq!(
        line("release  1   2  3"),
        Step::Request(Request::Release {
            job: JobId(1),
            priority: Priority(2),
            delay: Seconds(3)
        })
    );
    assert_eq!(said(b"put   0   0  1    1\r\na\r\n"), [put(0, 0, 1, b"a")]);
}

#[test]
fn edge_20_a_tab_is_no_separator() {
    assert_eq!(line("use\ta"), unknown());
    all(&["put 0\t0 1 1", "pause-tube default\t0"], bad_format);
}

#[test]
fn edge_21_id_commands_take_nothing_more() {
    all(
        &[
            "delete 1 ",
            "delete 1 2",
            "peek 1 ",
            "touch 1 2",
            "bury 1 2 3",
            "release 1 2 3 4",
            "stats-job 1 ",
            "kick-job 1x",
            "reserve-job 1x",
        ],
        bad_format,
    );
}

#[test]
fn edge_22_missing_arguments() {
    all(
        &[
            "bury 1",
            "release 1",
            "release 1 2",
            "put 0 0 1",
            "pause-tube default",
        ],
        bad_format,
    );
}

#[test]
fn edge_23_no_signs_decimals_hex_or_exponents() {
    all(
        &[
            "peek -1",
            "peek +1",
            "delete x",
            "put -1 0 1 1",
            "put +1 0 1 1",
            "put 0x1 0 1 1",
            "put 1e3 0 1 1",
            "put 0 1.5 1 1",
        ],
        bad_format,
    );
}

#[test]
fn edge_24_job_ids_are_64_bit() {
    assert_eq!(
        line("peek 18446744073709551615"),
        Step::Request(Request::Peek(JobId(u64::MAX)))
    );
    assert_eq!(line("peek 18446744073709551616"), bad_format());
    assert_eq!(line("peek 0"), Step::Request(Request::Peek(JobId(0))));
    assert_eq!(line("delete 0"), Step::Request(Request::Delete(JobId(0))));
}

#[test]
fn edge_25_the_other_numbers_are_32_bit() {
    let most = u32::MAX;
    assert_eq!(
        said(b"put 4294967295 4294967295 4294967295 0\r\n\r\n"),
        [put(most, most, most, b"")]
    );
    assert_eq!(
        line("release 1 4294967295 4294967295"),
        Step::Request(Request::Release {
            job: JobId(1),
            priority: Priority(most),
            delay: Seconds(most)
        })
    );
    assert_eq!(
        line("pause-tube default 4294967295"),
        Step::Request(Request::PauseTube {
            tube: TubeName::default_tube(),
            delay: Seconds(most)
        })
    );
    all(
        &[
            "put 4294967296 0 1 1",
            "put 0 4294967296 1 1",
            "put 0 0 4294967296 1",
            "put 0 0 1 4294967296",
            "release 1 4294967296 0",
            "release 1 0 4294967296",
            "bury 1 4294967296",
            "pause-tube default 4294967296",
        ],
        bad_format,
    );
}

#[test]
fn edge_26_a_reserve_timeout_has_31_bits() {
    for seconds in [0, 2_147_483_647] {
        assert_eq!(
            line(&format!("reserve-with-timeout {seconds}")),
            Step::Request(Request::ReserveWithTimeout(Seconds(seconds)))
        );
    }
    for bad in ["2147483648", "4294967296", "-1", "+0", "x"] {
        assert_eq!(
            line(&format!("reserve-with-timeout {bad}")),
            bad_format(),
            "{bad}"
        );
    }
}

#[test]
fn edge_27_what_follows_a_reserve_timeout_is_ignored() {
    all(
        &["reserve-with-timeout 0x", "reserve-with-timeout 0 5"],
        || Step::Request(Request::ReserveWithTimeout(Seconds(0))),
    );
}

#[test]
fn edge_28_kick_reads_its_bound_loosely() {
    for (text, bound) in [
        ("2junk", 2),
        ("+1", 1),
        (" \t1", 1),
        ("0x10", 0),
        ("\n\u{b}\u{c}7", 7),
        ("1 2 3", 1),
    ] {
        assert_eq!(
            line(&format!("kick {text}")),
            Step::Request(Request::Kick { bound }),
            "{text}"
        );
    }
    all(
        &["kick x", "kick 18446744073709551616", "kick -", "kick +-1"],
        bad_format,
    );
}

#[test]
fn edge_29_a_kick_bound_is_cut_to_32_bits_after_its_sign() {
    for (text, bound) in [
        ("4294967297", 1),
        ("4294967296", 0),
        ("-1", u32::MAX),
        ("-4294967295", 1),
        ("18446744073709551615", u32::MAX),
    ] {
        assert_eq!(
            line(&format!("kick {text}")),
            Step::Request(Request::Kick { bound }),
            "{text}"
        );
    }
}

#[test]
fn edge_30_pause_tube_needs_no_space() {
    for text in ["pause-tubedefault 0", "pause-tube   default   0"] {
        assert_eq!(
            line(text),
            Step::Request(Request::PauseTube {
                tube: tube("default"),
                delay: Seconds(0)
            })
        );
    }
    all(
        &[
            "pause-tube default 0 ",
            "pause-tube default 0 1",
            "pause-tube default0",
        ],
        bad_format,
    );
}
