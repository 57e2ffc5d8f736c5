//! What a connection promises, and what becomes of it.

use std::task::Waker;

use super::*;

const A: HostId = 1;
const B: HostId = 2;

/// Two machines and a connection from the first to the second.
fn connected() -> (Net, End, End) {
    let net = Net::new(1);
    net.power_on(A, "a");
    net.power_on(B, "b");
    let mut listening = net.listen(B, Port::Peers);
    let mut connecting = net.connect(A, "b", Port::Peers);
    run(&net, 10);
    let here = connecting.try_recv().expect("an answer");
    let here = here.expect("it is accepted");
    let there = listening.try_recv().expect("it has come in");
    (net, here, there)
}

fn run(net: &Net, ms: u64) {
    for _ in 0..ms {
        net.advance(net.now() + 1);
    }
}

fn hear(net: &Net, side: usize) -> Result<String, io::ErrorKind> {
    let mut bytes = BytesMut::new();
    let read = net.read(1, side, 1_000, &mut bytes);
    read.map_err(|error| error.kind())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[test]
fn bytes_come_later_and_in_order() {
    let (net, _here, _there) = connected();
    net.set_weather(
        A,
        B,
        Weather {
            base_ms: 5,
            jitter_ms: 50,
            lost_permille: 200,
        },
    );
    for letter in ["a", "b", "c", "d", "e", "f"] {
        assert_eq!(net.write(1, 0, letter.as_bytes()).ok(), Some(1));
    }
    assert_eq!(hear(&net, 1), Err(io::ErrorKind::WouldBlock));
    run(&net, 3_000);
    assert_eq!(hear(&net, 1), Ok("abcdef".to_owned()));
}

#[test]
fn a_cut_holds_back_and_a_mended_link_delivers() {
    let (net, _here, _there) = connected();
    net.cut(A, B);
    assert_eq!(net.write(1, 0, b"late").ok(), Some(4));
    assert_eq!(net.write(1, 1, b"other way").ok(), Some(9));
    run(&net, 5_000);
    assert_eq!(hear(&net, 1), Err(io::ErrorKind::WouldBlock));
    assert_eq!(hear(&net, 0), Ok("other way".to_owned()));
    assert_eq!(net.hindered(), 1);
    net.mend(A, B);
    run(&net, 500);
    assert_eq!(hear(&net, 1), Ok("late".to_owned()));
}

#[test]
fn a_killed_process_resets_and_a_machine_without_power_says_nothing() {
    let (net, _here, _there) = connected();
    net.process_gone(B, true);
    run(&net, 10);
    assert_eq!(hear(&net, 0), Err(io::ErrorKind::ConnectionReset));
    let mut refused = net.connect(A, "b", Port::Peers);
    run(&net, 10);
    let refused = refused.try_recv().expect("an answer").err();
    assert_eq!(
        refused.map(|error| error.kind()),
        Some(io::ErrorKind::ConnectionRefused)
    );

    let (net, _here, _there) = connected();
    net.process_gone(B, false);
    assert_eq!(net.write(1, 0, b"into the void").ok(), Some(13));
    let mut unanswered = net.connect(A, "b", Port::Peers);
    run(&net, 5_000);
    assert_eq!(hear(&net, 0), Err(io::ErrorKind::WouldBlock));
    assert!(unanswered.try_recv().is_err(), "nobody answers");
    // Its new kernel knows nothing of the connection.
    net.power_on(B, "b");
    assert_eq!(net.write(1, 0, b"again").ok(), Some(5));
    run(&net, 10);
    assert_eq!(hear(&net, 0), Err(io::ErrorKind::ConnectionReset));
}

#[test]
fn what_a_mute_process_says_goes_nowhere() {
    let (net, _here, _there) = connected();
    net.mute(A);
    assert_eq!(net.write(1, 0, b"unheard").ok(), Some(7));
    run(&net, 100);
    assert_eq!(hear(&net, 1), Err(io::ErrorKind::WouldBlock));
}

#[test]
fn a_reader_is_woken_and_a_full_connection_takes_no_more() {
    let (net, _here, _there) = connected();
    let context = Context::from_waker(Waker::noop());
    assert!(net.poll_readable(1, 1, &context).is_pending());
    let much = vec![0; 2 * WINDOW_BYTES];
    assert_eq!(net.write(1, 0, &much).ok(), Some(WINDOW_BYTES));
    let full = net.write(1, 0, b"more").map_err(|error| error.kind());
    assert_eq!(full, Err(io::ErrorKind::WouldBlock));
    run(&net, 10);
    assert!(net.poll_readable(1, 1, &context).is_ready());
}
