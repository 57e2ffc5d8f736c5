//! The door between real sockets and a scripted node.

mod stage;

use std::io::{Read as _, Write as _};
use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use stage::{Client, Stage, until_true};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
};
use trellis_beanstalk::{Door, DoorSettings, Listen};

#[tokio::test]
async fn a_thousand_pipelined_puts_go_in_as_few_portions_and_are_answered_in_order() {
    let stage = Stage::new();
    let address = stage.opens().await;
    let mut ann = stage.client(address).await;

    ann.says(&"put 0 0 60 3\r\nabc\r\n".repeat(1000)).await;
    let expected: String = (1..=1000).map(|id| format!("INSERTED {id}\r\n")).collect();
    ann.hears(&expected).await;

    let actor = stage.actor(1).await;
    let portions = actor.portions.lock().clone();
    assert_eq!(portions.iter().sum::<usize>(), 1000);
    assert!(
        portions.len() <= 40,
        "everything at hand is submitted at once: {portions:?}"
    );
}

#[tokio::test]
async fn answers_keep_the_order_of_commands_refusals_among_them() {
    let stage = Stage::new();
    let address = stage.opens().await;
    let mut ann = stage.client(address).await;

    ann.says("use a\r\nnonsense\r\nput 0 0 1 1\r\nx\r\ndelete x\r\ndelete 1\r\nput 0 0 1 1\r\nxyz")
        .await;
    ann.hears(
        "USING a\r\nUNKNOWN_COMMAND\r\nINSERTED 1\r\nBAD_FORMAT\r\nDELETED\r\nEXPECTED_CRLF\r\n",
    )
    .await;
}

/// Specification 1.7 and sharp edge 41: the body is thrown away as it comes, whatever its length.
#[tokio::test]
async fn a_body_that_is_too_big_is_swallowed_and_refused() {
    let stage = Stage::new();
    let address = stage.opens().await;
    let mut ann = stage.client(address).await;

    ann.says("put 0 0 1 4000000\r\n").await;
    let block = vec![b'x'; 100_000];
    for _ in 0..40 {
        ann.sends(&block).await;
    }
    ann.says("\r\nlist-tubes\r\n").await;
    ann.hears("JOB_TOO_BIG\r\nOK 14\r\n---\n- default\n\r\n")
        .await;

    let mut eve = stage.client(address).await;
    eve.says("put 0 0 1 4294967295\r\n").await;
    eve.hears_nothing_for(Duration::from_millis(100)).await;
}

#[tokio::test]
async fn garbage_gets_the_protocols_words_and_the_connection_goes_on() {
    let stage = Stage::new();
    let address = stage.opens().await;
    let mut ann = stage.client(address).await;

    let mut noise: Vec<u8> = (0..200_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    noise.retain(|byte| *byte != b'\n');
    ann.sends(&noise).await;
    ann.hears_nothing_for(Duration::from_millis(50)).await;
    ann.says("\r\nuse a\r\n").await;
    ann.hears("BAD_FORMAT\r\nUSING a\r\n").await;
}

#[tokio::test]
async fn a_command_may_come_byte_by_byte() {
    let stage = Stage::new();
    let address = stage.opens().await;
    let mut ann = stage.client(address).await;
    for byte in b"put 0 0 1 3\r\na\r\n\r\n" {
        ann.sends(&[*byte]).await;
        tokio::task::yield_now().await;
    }
    ann.hears("INSERTED 1\r\n").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_answers_of_one_round_leave_in_one_write() {
    let stage = Stage::new();
    let address = stage.opens().await;
    stage.is_slow();
    let ann = stage.client(address).await;
    let (mut input, mut output) = ann.0.into_split();
    let actor = stage.actor(1).await;

    for turn in 0..50u64 {
        output
            .write_all(&b"put 0 0 1 1\r\nx\r\n".repeat(5))
            .await
            .expect("the door reads");
        until_true("all five are submitted", || actor.waiting() == 5).await;
        // A reader that waits already sees each write by itself.
        let reading = tokio::spawn(async move {
            let mut heard = vec![0; 4096];
            let count = input.read(&mut heard).await.expect("the door answers");
            heard.truncate(count);
            (input, heard)
        });
        tokio::task::yield_now().await;
        stage.round();
        let heard;
        (input, heard) = reading.await.expect("the reader lives");
        let expected: String = (1..=5)
            .map(|n| format!("INSERTED {}\r\n", turn * 5 + n))
            .collect();
        assert_eq!(String::from_utf8_lossy(&heard), expected);
    }
}

/// Specification 1.2 and sharp edge 17: commands behind a quit are dropped, and the answers before
/// it arrive whole.
#[tokio::test]
async fn quit_closes_after_the_answers_before_it() {
    let stage = Stage::new();
    let address = stage.opens().await;
    let mut ann = stage.client(address).await;
    let rest = "use b\r\n".repeat(10_000);
    ann.says(&format!("use a\r\nquit\r\n{rest}")).await;
    ann.hears("USING a\r\n").await;
    ann.hears_the_end().await;
    until_true("the session is over", || stage.connections() == 0).await;
}

/// Specification 1.10.
#[tokio::test]
async fn a_half_closed_client_gets_all_its_answers_and_then_the_end() {
    let stage = Stage::new();
    let address = stage.opens().await;
    let mut ann = stage.client(address).await;
    ann.says("put 0 0 1 1\r\nx\r\nreserve\r\ndelete 1\r\nput 0 0 1 5\r\nhal")
        .await;
    ann.hears("INSERTED 1\r\n").await;
    ann.hears_nothing_for(Duration::from_millis(50)).await;

    ann.0
        .shutdown()
        .await
        .expect("the sending side can be shut");
    ann.hears("TIMED_OUT\r\nDELETED\r\n").await;
    ann.hears_the_end().await;
    until_true("the session is over", || stage.connections() == 0).await;
}

/// Sharp edge 147: 2000 pipelined puts then a half-close; all are stored and answered.
#[tokio::test]
async fn what_was_sent_before_a_half_close_is_carried_out_even_if_reading_was_held_back() {
    let stage = Stage::new();
    let address = stage.opens().await;
    let mut ann = stage.client(address).await;
    let actor = stage.actor(1).await;
    actor.stop();
    let puts = "put 0 0 60 1\r\nx\r\n".repeat(2000);
    let (mut input, mut output) = ann.0.split();
    let expected: String = (1..=2000).map(|id| format!("INSERTED {id}\r\n")).collect();
    output
        .write_all(puts.as_bytes())
        .await
        .expect("the kernel takes it");
    output
        .shutdown()
        .await
        .expect("the sending side can be shut");

    until_true("the half-close is noticed though nothing is read", || {
        actor.half_closed.load(Ordering::Relaxed)
    })
    .await;
    actor.go_on();
    let mut heard = String::new();
    let end = tokio::time::timeout(stage::PATIENCE, input.read_to_string(&mut heard)).await;
    end.expect("the door closes in the end")
        .expect("in good order");
    assert_eq!(heard, expected);
}

/// What stands behind a reserve that waits is not read again, and the hang-up is noticed all the
/// same.
#[tokio::test]
async fn a_client_that_shuts_its_side_behind_a_quit_is_answered_and_let_go() {
    let stage = Stage::new();
    let address = stage.opens().await;
    let mut ann = stage.client(address).await;
    ann.says("reserve\r\nquit\r\n").await;
    let actor = stage.actor(1).await;
    until_true("both are submitted", || actor.waiting() == 2).await;
    ann.0
        .shutdown()
        .await
        .expect("the sending side can be shut");
    ann.hears("TIMED_OUT\r\n").await;
    ann.hears_the_end().await;
}

#[tokio::test]
async fn a_client_that_vanishes_is_noticed_while_nothing_of_it_is_read() {
    let stage = Stage::new();
    let address = stage.opens().await;
    let mut ann = stage.client(address).await;
    let actor = stage.actor(1).await;
    actor.stop();
    ann.says("use a\r\n").await;
    // A reset, as from a process that was killed with unread input.
    socket2::SockRef::from(&ann.0)
        .set_linger(Some(Duration::ZERO))
        .expect("a socket");
    drop(ann);
    until_true("the session is over", || stage.connections() == 0).await;
}

/// Sharp edge 141.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_blocks_only_itself() {
    for far in [false, true] {
        let stage = Stage::new();
        stage.shows(Bytes::from(vec![b'x'; 65_000]), far);
        let address = stage.opens().await;
        let mut slow = stage.client(address).await;
        slow.says(&"peek 1\r\n".repeat(2000)).await;
        let actor = stage.actor(1).await;
        // What it was allowed to submit has been answered; more is not taken.
        let submitted = || actor.portions.lock().iter().sum::<usize>();
        let begun = std::time::Instant::now();
        let (mut before, mut stands_since) = (0, begun);
        while before == 0 || stands_since.elapsed() < Duration::from_millis(200) {
            let now = submitted();
            if now != before {
                (before, stands_since) = (now, std::time::Instant::now());
            }
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{before} commands are submitted and it does not come to rest"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(before < 2000, "its commands are not read any more");

        let mut quick = stage.client(address).await;
        for _ in 0..20 {
            let begin = std::time::Instant::now();
            quick.says("use a\r\n").await;
            quick.hears("USING a\r\n").await;
            assert!(
                begin.elapsed() < Duration::from_secs(1),
                "took {:?}",
                begin.elapsed()
            );
        }

        // When it reads at last it gets everything, whole and in order.
        let mut expected = b"FOUND 1 65000\r\n".to_vec();
        expected.extend(vec![b'x'; 65_000]);
        expected.extend(b"\r\n");
        let mut heard = vec![0; expected.len()];
        for turn in 0..2000 {
            tokio::time::timeout(stage::PATIENCE, slow.0.read_exact(&mut heard))
                .await
                .unwrap_or_else(|_| panic!("answer {turn} does not come"))
                .expect("the connection lives");
            assert!(heard == expected, "answer {turn} is damaged");
        }
    }
}

/// Specification, 1: a client blocks only itself. One that never stops talking, and reads what it
/// is told, must not keep the only thread from the others.
#[tokio::test]
async fn a_client_that_never_stops_talking_blocks_only_itself() {
    let stage = Stage::new();
    let address = stage.opens().await;
    drop(stage.client(address).await);
    let flood = Flood::begins(address);
    let quick = tokio::task::spawn_blocking(move || {
        flood.runs();
        let mut quick = std::net::TcpStream::connect(address).expect("the door is open");
        quick
            .set_read_timeout(Some(stage::PATIENCE))
            .expect("a socket");
        for _ in 0..20 {
            let mut heard = [0; 9];
            quick.write_all(b"use b\r\n").expect("it is read");
            quick
                .read_exact(&mut heard)
                .expect("an answer while the other one talks");
            assert_eq!(&heard, b"USING b\r\n");
        }
    });
    quick.await.expect("the quick one is answered");
}

/// A client on threads of its own that talks and reads for as long as it lives.
struct Flood {
    socket: std::net::TcpStream,
    answers: std::sync::Arc<std::sync::atomic::AtomicUsize>,
}

impl Flood {
    fn begins(address: std::net::SocketAddr) -> Self {
        let socket = std::net::TcpStream::connect(address).expect("the door is open");
        let answers = std::sync::Arc::<std::sync::atomic::AtomicUsize>::default();
        let mut mouth = socket.try_clone().expect("a socket");
        std::thread::spawn(move || {
            let words = b"use a\r\n".repeat(10_000);
            while mouth.write_all(&words).is_ok() {}
        });
        let mut ear = socket.try_clone().expect("a socket");
        let count = std::sync::Arc::clone(&answers);
        std::thread::spawn(move || {
            let mut heard = vec![0; 64 * 1024];
            while let Ok(bytes @ 1..) = ear.read(&mut heard) {
                count.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
            }
        });
        Self { socket, answers }
    }

    /// Waits until it is in full flow.
    fn runs(&self) {
        let begin = std::time::Instant::now();
        while self.answers.load(std::sync::atomic::Ordering::Relaxed) < 1_000_000 {
            assert!(
                begin.elapsed() < stage::PATIENCE,
                "the flood is not answered"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        drop(self.socket.shutdown(std::net::Shutdown::Both));
    }
}

/// Sharp edge: bodies from disk keep their place among answers that are at hand.
#[tokio::test]
async fn a_body_that_is_fetched_does_not_lose_its_place() {
    let stage = Stage::new();
    stage.shows(Bytes::from_static(b"far"), true);
    let address = stage.opens().await;
    let mut ann = stage.client(address).await;
    ann.says("use a\r\npeek 1\r\npeek 2\r\nuse b\r\npeek 3\r\nquit\r\n")
        .await;
    ann.hears("USING a\r\nFOUND 1 3\r\nfar\r\nFOUND 2 3\r\nfar\r\nUSING b\r\nFOUND 3 3\r\nfar\r\n")
        .await;
    ann.hears_the_end().await;
}

/// Architecture, section 10 rule 6: owed bytes are bounded; when somebody else needs the room,
/// whoever takes nothing is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_never_read_make_room_for_one_who_does() {
    let stage = Stage::new();
    stage.shows(Bytes::from(vec![b'x'; 60_000]), true);
    let settings = DoorSettings {
        owed_bytes_max: 1_000_000,
        stall: Duration::from_millis(500),
        ..DoorSettings::on(vec![Listen::Tcp(([127, 0, 0, 1], 0).into())])
    };
    let Listen::Tcp(address) = stage.opens_with(settings).await else {
        panic!("asked for TCP");
    };
    // What is submitted of each is more than the kernel's buffers and the bound together.
    let mut silent = Vec::new();
    for _ in 0..20 {
        let mut client = stage.client(address).await;
        client.says(&"peek 1\r\n".repeat(1000)).await;
        silent.push(client);
    }
    // Doors let in by turn: they are in when this one is.
    let mut quick = stage.client(address).await;
    quick.says(&"peek 1\r\n".repeat(300)).await;
    for _ in 0..300 {
        quick.hears("FOUND 1 60000\r\n").await;
        quick.hears(&"x".repeat(60_000)).await;
        quick.hears("\r\n").await;
    }
    // How many portions fit depends on how much of each the kernel has taken; not twenty and one.
    until_true("some are closed", || stage.connections() <= 20).await;
}

/// COMPAT: a client that is only slow stays connected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_read_keep_their_connections_however_much_they_are_owed_together() {
    for far in [true, false] {
        reads_on(far).await;
    }
}

async fn reads_on(far: bool) {
    let stage = Stage::new();
    stage.shows(Bytes::from(vec![b'x'; 60_000]), far);
    let address = stage.opens_with_bounds(1_000_000, usize::MAX).await;
    let mut readers = Vec::new();
    for _ in 0..8 {
        let mut client = stage.client(address).await;
        readers.push(tokio::spawn(async move {
            // More than the kernel's buffers hold, so that all of them are owed at the same time.
            client.says(&"peek 1\r\n".repeat(400)).await;
            let mut expected = b"FOUND 1 60000\r\n".to_vec();
            expected.extend(vec![b'x'; 60_000]);
            expected.extend(b"\r\n");
            let mut heard = vec![0; expected.len()];
            for turn in 0..400 {
                // The pace of a client that has something to do with what it reads.
                tokio::time::sleep(Duration::from_millis(3)).await;
                tokio::time::timeout(stage::PATIENCE, client.0.read_exact(&mut heard))
                    .await
                    .unwrap_or_else(|_| panic!("answer {turn} does not come"))
                    .expect("the connection lives");
                assert!(heard == expected, "answer {turn} is damaged");
            }
        }));
    }
    for reader in readers {
        reader.await.expect("it got everything");
    }
}

/// Architecture, section 11: what a client merely announces costs nothing, what it sends and never
/// finishes is bounded.
#[tokio::test]
async fn among_those_who_stop_in_the_middle_of_a_body_the_one_who_stopped_longest_ago_goes() {
    let stage = Stage::new();
    let address = stage.opens_with_bounds(usize::MAX, 100_000).await;
    let mut first = stage.client(address).await;
    let half = [b"put 0 0 1 60000\r\n".as_slice(), &[b'x'; 40_000]].concat();
    first.sends(&half).await;
    let mut second = stage.client(address).await;
    second.sends(&half).await;
    first.hears_nothing_for(Duration::from_millis(50)).await;
    let mut third = stage.client(address).await;
    third.sends(&half).await;

    first.hears_the_end().await;
    for patient in [&mut second, &mut third] {
        patient
            .sends(&[[b'x'; 20_000].as_slice(), b"\r\n"].concat())
            .await;
    }
    second.hears("INSERTED ").await;
    third.hears("INSERTED ").await;
}

/// A large body has a place of its own: it keeps other large ones waiting, and nobody else.
#[tokio::test]
async fn who_stops_in_the_middle_of_a_large_body_keeps_no_small_one_waiting() {
    let stage = Stage::new();
    let settings = DoorSettings {
        body_bytes_max: 4_000_000,
        large_bodies_bytes_max: 4_000_000,
        ..DoorSettings::on(vec![Listen::Tcp(([127, 0, 0, 1], 0).into())])
    };
    let Listen::Tcp(address) = stage.opens_with(settings).await else {
        panic!("asked for TCP");
    };
    let mut first = stage.client(address).await;
    first.says("put 0 0 1 4000000\r\n").await;
    first.sends(&vec![b'x'; 1_000_000]).await;
    let mut second = stage.client(address).await;
    second.says("put 0 0 1 3000000\r\n").await;
    let sending = tokio::spawn(async move {
        second
            .sends(&[vec![b'x'; 3_000_000].as_slice(), b"\r\n"].concat())
            .await;
        second
    });
    let mut third = stage.client(address).await;
    third
        .sends(&[b"put 0 0 1 65000\r\n".as_slice(), &[b'x'; 65_000], b"\r\n"].concat())
        .await;
    third.hears("INSERTED 1\r\n").await;

    first
        .sends(&[vec![b'x'; 3_000_000].as_slice(), b"\r\n"].concat())
        .await;
    first.hears("INSERTED 2\r\n").await;
    let mut second = sending.await.expect("its body is read at last");
    second.hears("INSERTED 3\r\n").await;
}

#[tokio::test]
async fn one_connection_too_many_is_accepted_and_closed() {
    let stage = Stage::with_connections_max(2);
    let address = stage.opens().await;
    let mut ann = stage.client(address).await;
    let _bob = stage.client(address).await;
    until_true("both are in", || stage.connections() == 2).await;

    let mut eve: Client = TcpStream::connect(address)
        .await
        .expect("it is accepted")
        .into();
    eve.hears_the_end().await;
    ann.says("use a\r\n").await;
    ann.hears("USING a\r\n").await;

    drop(ann);
    until_true("there is room again", || stage.connections() == 1).await;
    let mut joe = stage.client(address).await;
    joe.says("use a\r\n").await;
    joe.hears("USING a\r\n").await;
}

#[tokio::test]
async fn the_door_opens_and_closes_with_the_origin() {
    let stage = Stage::new();
    stage.close_doors();
    let address = stage.opens().await;
    assert!(
        TcpStream::connect(address).await.is_err(),
        "nobody is let in yet"
    );

    stage.open_doors();
    let mut ann = stage.client(address).await;
    ann.says("use a\r\n").await;
    ann.hears("USING a\r\n").await;

    stage.close_doors();
    ann.hears_the_end().await;
    until_true("the session is over", || stage.connections() == 0).await;
    stage::until("the listener is closed", || async {
        TcpStream::connect(address).await.err()
    })
    .await;

    stage.open_doors();
    let mut ann = stage.client(address).await;
    ann.says("use a\r\n").await;
    ann.hears("USING a\r\n").await;
}

/// Specification 8.1 and sharp edge 134.
#[tokio::test]
async fn a_stale_unix_socket_is_replaced_and_another_file_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("b.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket that nobody serves"));
    let stage = Stage::new();
    stage.opens_on(Listen::Unix(path.clone())).await;
    let mut ann = stage::until("the door is open", || async {
        UnixStream::connect(&path).await.ok()
    })
    .await;
    ann.write_all(b"use a\r\n").await.expect("the door reads");
    let mut heard = [0; 9];
    ann.read_exact(&mut heard).await.expect("and answers");
    assert_eq!(&heard, b"USING a\r\n");
    ann.shutdown().await.expect("half-close");
    assert_eq!(ann.read(&mut heard).await.expect("an end"), 0);

    let refused = |path: std::path::PathBuf| {
        let settings = DoorSettings::on(vec![Listen::Unix(path)]);
        Door::bind(settings)
            .err()
            .map(|error| error.to_string())
            .expect("it is refused")
    };
    assert!(refused(path).ends_with("another process does"));
    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "dear diary").expect("a file");
    assert!(refused(file.clone()).ends_with("move it away"));
    assert_eq!(
        std::fs::read_to_string(file).expect("still there"),
        "dear diary"
    );
}
