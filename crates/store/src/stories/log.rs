use std::fs;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage};
use openraft::vote::RaftLeaderId;
use trellis_consensus::raft::{LeaderId, VoteOf};

use super::*;

fn vote(term: u64) -> VoteOf {
    VoteOf {
        leader_id: LeaderId::new(term, NodeId(7)),
        committed: false,
    }
}

async fn indexes(log: &mut crate::LogStore, range: Range<u64>) -> Vec<u64> {
    let mut reader = log.get_log_reader().await;
    let found = reader.try_get_log_entries(range).await.unwrap();
    found.iter().map(|entry| entry.position().index).collect()
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_crash() {
    let folder = Folder::new();
    let mut opened = folder.open();
    append(&mut opened.log, entries(0..10)).await.unwrap();
    opened.log.save_vote(&vote(3)).await.unwrap();

    let image = folder.crash_image();
    let mut again = image.open();
    assert_eq!(
        indexes(&mut again.log, 0..100).await,
        (0..10).collect::<Vec<_>>()
    );
    let mut reader = again.log.get_log_reader().await;
    assert_eq!(reader.read_vote().await.unwrap(), Some(vote(3)));
    assert_eq!(again.log.vote_term(), 3);
    append(&mut again.log, entries(10..12)).await.unwrap();
    assert_eq!(again.log.last_index(), Some(11));
    assert_eq!(image.failures(), [""; 0]);
}

#[tokio::test]
async fn nothing_is_acknowledged_before_it_is_on_disk() {
    let folder = Folder::new();
    let (mut opened, disk) = folder.open_faulty();
    disk.hang(true);
    let (done, mut on_disk) = TypeConfig::oneshot();
    let callback = IOFlushed::signal(done);
    opened.log.append(entries(0..1), callback).await.unwrap();
    assert!((&mut on_disk).now_or_never().is_none());
    disk.hang(false);
    on_disk.await.unwrap().unwrap();
}

/// A node that forgets a vote gives another in the same term.
#[tokio::test]
async fn a_vote_is_on_disk_before_it_is_given() {
    let folder = Folder::new();
    let mut opened = folder.open();
    for term in 1..4 {
        opened.log.save_vote(&vote(term)).await.unwrap();
        let image = folder.crash_image();
        let mut again = image.open();
        let mut reader = again.log.get_log_reader().await;
        assert_eq!(reader.read_vote().await.unwrap(), Some(vote(term)));
        assert_eq!(again.log.vote_term(), term);
    }
}

#[tokio::test]
async fn what_waits_behind_one_sync_goes_with_the_next_one() {
    let folder = Folder::new();
    let (mut opened, disk) = folder.open_faulty();
    append(&mut opened.log, entries(0..1)).await.unwrap();
    let before = disk.writes();

    disk.hang(true);
    let mut waiting = Vec::new();
    for index in 1..50 {
        let (done, on_disk) = TypeConfig::oneshot();
        let one = entries(index..index + 1);
        opened
            .log
            .append(one, IOFlushed::signal(done))
            .await
            .unwrap();
        waiting.push(on_disk);
    }
    assert_eq!(
        opened.log.flushed(),
        Some(0),
        "nothing is acknowledged before its sync"
    );
    assert_eq!(
        indexes(&mut opened.log, 0..100).await.len(),
        50,
        "yet it can be read"
    );
    disk.hang(false);
    for on_disk in waiting {
        on_disk.await.unwrap().unwrap();
    }
    let syncs = disk.writes() - before;
    assert!(syncs <= 2, "49 appends took {syncs} syncs");
}

#[tokio::test]
async fn an_append_with_a_hole_is_refused_and_stops_the_node() {
    let folder = Folder::new();
    let mut opened = folder.open();
    append(&mut opened.log, entries(0..3)).await.unwrap();
    let refused = append(&mut opened.log, entries(4..5)).await;
    assert!(refused.is_err());
    assert_eq!(folder.failures().len(), 1, "{:?}", folder.failures());
    assert!(
        folder.failures()[0].contains("T1-N0000000000000007.4 was to be appended"),
        "{:?}",
        folder.failures()
    );
    assert!(
        append(&mut opened.log, entries(3..4)).await.is_err(),
        "it has stopped for good"
    );
}

#[tokio::test]
async fn an_append_that_goes_back_in_time_is_refused() {
    let folder = Folder::new();
    let mut opened = folder.open();
    append(&mut opened.log, entries(0..3)).await.unwrap();
    let old = Position { term: 0, ..at(3) };
    let old = Entry::new_blank(old.into());
    assert!(append(&mut opened.log, vec![old]).await.is_err());
    assert_eq!(folder.failures().len(), 1);
}

#[tokio::test]
async fn an_empty_log_begins_with_entry_0() {
    let folder = Folder::new();
    let mut opened = folder.open();
    assert!(append(&mut opened.log, entries(2..3)).await.is_err());
    assert_eq!(folder.failures().len(), 1);
}

#[tokio::test]
async fn a_truncation_is_on_disk_before_it_returns() {
    let folder = Folder::new();
    let mut opened = folder.open();
    append(&mut opened.log, entries(0..10)).await.unwrap();
    opened.log.truncate_after(Some(log_id(4))).await.unwrap();

    let mut again = folder.crash_image().open();
    assert_eq!(indexes(&mut again.log, 0..100).await, [0, 1, 2, 3, 4]);

    let newer = Position { term: 2, ..at(5) };
    append(&mut opened.log, vec![Entry::new_blank(newer.into())])
        .await
        .unwrap();
    let mut again = folder.crash_image().open();
    assert_eq!(indexes(&mut again.log, 0..100).await, [0, 1, 2, 3, 4, 5]);
    let mut reader = again.log.get_log_reader().await;
    let last = reader.try_get_log_entries(5..6).await.unwrap();
    assert_eq!(last[0].position(), newer);
}

/// A majority elsewhere may be quicker than this disk. A node whose `committed` is beyond its log
/// can't start.
#[tokio::test]
async fn committed_is_never_stored_beyond_what_is_on_disk() {
    let folder = Folder::with(|options| options.log.batch_bytes = 1);
    let (mut opened, disk) = folder.open_faulty();
    append(&mut opened.log, entries(0..5)).await.unwrap();
    disk.hang(true);
    for index in 5..9 {
        let (done, _on_disk) = TypeConfig::oneshot();
        let one = entries(index..index + 1);
        opened
            .log
            .append(one, IOFlushed::signal(done))
            .await
            .unwrap();
    }
    opened.log.save_committed(Some(log_id(8))).await.unwrap();
    // Entry 5 was on its way before; entry 6 is the first that takes `committed` along.
    disk.pass(2);
    eventually(|| opened.log.flushed(), |flushed| *flushed == Some(6));
    let stored = disk.named("committed").unwrap().unwrap();
    assert_eq!(crate::codec::decode_position(&stored).unwrap(), at(6));
    let mut again = folder.crash_image().open();
    assert_eq!(again.log.read_committed().await.unwrap(), Some(log_id(6)));

    disk.hang(false);
    eventually(|| opened.log.flushed(), |flushed| *flushed == Some(8));
    let mut again = folder.crash_image().open();
    assert_eq!(again.log.read_committed().await.unwrap(), Some(log_id(8)));
}

#[tokio::test]
async fn a_committed_beyond_the_log_is_read_as_the_end_of_the_log() {
    let folder = Folder::new();
    let (mut opened, disk) = folder.open_faulty();
    append(&mut opened.log, entries(0..5)).await.unwrap();
    disk.write(&[Step::Name {
        name: "committed",
        value: crate::codec::encode_position(at(8)),
    }])
    .unwrap();
    let mut again = folder.crash_image().open();
    assert_eq!(again.log.read_committed().await.unwrap(), Some(log_id(4)));
}

#[tokio::test]
async fn committed_alone_costs_no_sync() {
    let folder = Folder::new();
    let (mut opened, disk) = folder.open_faulty();
    append(&mut opened.log, entries(0..5)).await.unwrap();
    let before = disk.writes();
    for index in 0..5 {
        opened
            .log
            .save_committed(Some(log_id(index)))
            .await
            .unwrap();
    }
    opened.log.save_vote(&vote(2)).await.unwrap();
    assert_eq!(disk.writes(), before + 1, "only the vote's");
}

#[tokio::test]
async fn a_laggard_is_served_from_disk_and_apply_in_portions() {
    let folder = Folder::with(|options| {
        options.log.tail_bytes = 2_000;
        options.log.read_bytes = 1_000;
    });
    let mut opened = folder.open();
    for index in (0..100).step_by(10) {
        append(&mut opened.log, entries(index..index + 10))
            .await
            .unwrap();
    }
    let before = opened.log.metrics().disk_reads.get();
    assert_eq!(
        indexes(&mut opened.log, 0..100).await,
        (0..100).collect::<Vec<_>>()
    );
    assert!(opened.log.metrics().disk_reads.get() > before);

    let mut reader = opened.log.get_log_reader().await;
    let portion = reader.limited_get_log_entries(3, 90).await.unwrap();
    assert_eq!(portion[0].position().index, 3);
    assert!(
        (1..20).contains(&portion.len()),
        "{} entries",
        portion.len()
    );

    let all: Vec<_> = reader.entries_stream(0..100).await.collect().await;
    let all: Vec<u64> = all
        .into_iter()
        .map(|entry| entry.unwrap().position().index)
        .collect();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_failed_sync_stops_the_node_once_and_nothing_is_acknowledged_after_it() {
    let folder = Folder::new();
    let (mut opened, disk) = folder.open_faulty();
    append(&mut opened.log, entries(0..1)).await.unwrap();
    disk.failing.store(true, Ordering::SeqCst);
    assert!(append(&mut opened.log, entries(1..2)).await.is_err());
    // The disk says it is well again. It is not believed: faults D27.
    disk.failing.store(false, Ordering::SeqCst);
    assert!(append(&mut opened.log, entries(2..3)).await.is_err());
    assert!(opened.log.save_vote(&vote(9)).await.is_err());
    assert!(opened.meta.next_run().is_err());
    assert_eq!(opened.log.flushed(), Some(0));
    let failures = folder.failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].contains("the disk is on fire"), "{failures:?}");
}

/// Faults D27: the system may have dropped what it could not write, so a second try that succeeds
/// proves nothing.
#[tokio::test]
async fn a_write_that_failed_is_not_done_again() {
    let folder = Folder::new();
    let (mut opened, disk) = folder.open_faulty();
    append(&mut opened.log, entries(0..1)).await.unwrap();
    let before = disk.writes();
    disk.failing_once.store(true, Ordering::SeqCst);
    assert!(append(&mut opened.log, entries(1..2)).await.is_err());
    assert!(append(&mut opened.log, entries(2..3)).await.is_err());
    assert_eq!(disk.writes(), before + 1, "the one that failed");
    assert_eq!(folder.failures().len(), 1);
}

#[tokio::test]
async fn a_write_that_does_not_come_back_is_a_failed_write() {
    let folder = Folder::with(|options| {
        options.log.write_outstanding_max = Duration::from_millis(300);
    });
    let (mut opened, disk) = folder.open_faulty();
    assert_eq!(opened.log.write_outstanding(), None);
    disk.hang(true);
    let (done, _on_disk) = TypeConfig::oneshot();
    opened
        .log
        .append(entries(0..1), IOFlushed::signal(done))
        .await
        .unwrap();
    eventually(|| opened.log.write_outstanding(), Option::is_some);
    let failures = eventually(|| folder.failures(), |failures| !failures.is_empty());
    assert!(failures[0].contains("has not come back"), "{failures:?}");
    disk.hang(false);
}

#[tokio::test]
async fn a_full_queue_makes_the_append_wait() {
    let folder = Folder::with(|options| options.log.queue_bytes = 1_000);
    let (mut opened, disk) = folder.open_faulty();
    disk.hang(true);
    // The first goes to the disk, which hangs; then the queue fills.
    for index in 0..2 {
        let (done, _) = TypeConfig::oneshot();
        let big = vec![entry(index, 2_000)];
        opened
            .log
            .append(big, IOFlushed::signal(done))
            .await
            .unwrap();
        eventually(|| opened.log.write_outstanding(), Option::is_some);
    }
    let mut log = opened.log.clone();
    let late = tokio::spawn(async move { append(&mut log, vec![entry(2, 10)]).await });
    let first_look = tokio::time::timeout(Duration::from_millis(50), async {
        while !late.is_finished() {
            tokio::task::yield_now().await;
        }
    });
    assert!(first_look.await.is_err(), "it should wait for room");
    disk.hang(false);
    late.await.unwrap().unwrap();
}

/// Flips one bit of `file` at `offset`.
fn flip(file: &Path, offset: u64) {
    let mut bytes = fs::read(file).unwrap();
    bytes[usize::try_from(offset).unwrap()] ^= 0x10;
    fs::write(file, bytes).unwrap();
}

/// The file of the log in which `what` lies, and where.
fn find(folder: &Path, what: &[u8]) -> (PathBuf, u64) {
    for item in fs::read_dir(folder.join("log")).unwrap() {
        let path = item.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(what.len()).position(|it| it == what) {
            return (path, at as u64);
        }
    }
    panic!("nowhere in {}", folder.display());
}

fn marked(index: u64, mark: &str) -> Entry {
    let payload = Payload {
        at: Timestamp(index),
        batches: vec![Bytes::from(format!("{mark}{}", "x".repeat(1_000)))],
        leader: Vec::new(),
    };
    openraft::entry::RaftEntry::new_normal(log_id(index), payload)
}

/// Faults D33: what follows the damage was acknowledged, so it is not a torn tail.
#[tokio::test]
async fn a_flipped_bit_in_the_middle_of_the_log_is_refused() {
    let folder = Folder::new();
    let mut opened = folder.open();
    for index in 0..200 {
        let mark = if index == 100 { "in the middle" } else { "" };
        append(&mut opened.log, vec![marked(index, mark)])
            .await
            .unwrap();
    }
    let image = folder.crash_image();
    let (file, at) = find(&image.path(), b"in the middle");
    flip(&file, at);
    match image.try_open() {
        Err(OpenError::LogDamaged { detail, .. }) => assert!(!detail.is_empty()),
        Err(other) => panic!("{other}"),
        Ok(again) => panic!("opened with {:?}", again.log.last_index()),
    }
}

/// Faults D32: what the last write left half done was never acknowledged.
#[tokio::test]
async fn a_torn_tail_costs_only_what_was_not_acknowledged() {
    let folder = Folder::new();
    let mut opened = folder.open();
    append(&mut opened.log, entries(0..20)).await.unwrap();
    append(&mut opened.log, vec![marked(20, "the last one")])
        .await
        .unwrap();
    for lost in 0..3 {
        let image = folder.crash_image();
        let (path, at) = find(&image.path(), b"the last one");
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        // It has three sectors; none of the file was used before.
        let sector = (at / 512 + lost) * 512;
        std::os::unix::fs::FileExt::write_all_at(&file, &[0; 512], sector).unwrap();
        let again = image.open();
        assert_eq!(
            again.log.last_index(),
            Some(19),
            "sector {lost} of it is lost"
        );
    }
}

/// The state is made after the log: whoever has one and no log has forgotten what it acknowledged.
#[test]
fn a_log_that_is_gone_is_damage() {
    let folder = Folder::new();
    drop(folder.open());
    fs::remove_dir_all(folder.path().join("log")).unwrap();
    match folder.try_open() {
        Err(OpenError::LogDamaged { detail, .. }) => {
            assert!(detail.contains("empty although"), "{detail}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it opened"),
    }
}

#[tokio::test]
async fn the_log_goes_on_where_it_was_purged() {
    let folder = Folder::new();
    let mut opened = folder.open();
    append(&mut opened.log, entries(0..10)).await.unwrap();
    let refused = opened.log.purge(log_id(4)).await;
    assert!(refused.is_err(), "no state on disk covers it: rule 3");
    assert_eq!(folder.failures().len(), 1);
}
