use openraft::storage::RaftLogReader;
use trellis_consensus::StateStore;

use super::replica::*;
use super::*;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

/// Rule 3, and faults section 3, guard 2.
#[test]
fn the_log_is_purged_up_to_a_durable_snapshot_and_goes_on_behind_it() {
    let folder = Folder::with(|options| options.state.window = Duration::ZERO);
    let mut node = Replica::new(&folder);
    for _ in 0..20 {
        node.put("x");
    }
    let snapshot = node.snapshot().position();
    let runtime = runtime();
    let purge = node.opened.log.purge(snapshot.into());
    runtime.block_on(purge).unwrap();
    node.put("behind");
    eventually(
        || node.opened.log.flushed(),
        |flushed| *flushed == Some(node.next - 1),
    );

    let image = folder.crash_image();
    let mut again = image.open();
    assert_eq!(again.log.purged_index(), Some(snapshot.index));
    let state = runtime.block_on(again.log.get_log_state()).unwrap();
    assert_eq!(state.last_purged_log_id, Some(snapshot.into()));
    assert_eq!(state.last_log_id, Some(at(node.next - 1).into()));
    let loaded = again.state.load().unwrap();
    assert!(loaded.applied >= Some(snapshot));
    let mut reader = runtime.block_on(again.log.get_log_reader());
    let left = runtime
        .block_on(reader.try_get_log_entries(0..100))
        .unwrap();
    assert_eq!(left.len(), 1, "the one behind the snapshot");
}

/// A snapshot holds the windows that were written while it was made, too. What it holds the log may
/// forget, or a busy node would stop at its first purge.
#[test]
fn a_snapshot_made_under_load_lets_the_log_be_purged_up_to_it() {
    let folder = Folder::with(|options| options.state.window = Duration::ZERO);
    let mut node = Replica::new(&folder);
    let mut caught_up = 0;
    for round in 0..200 {
        let asked = node.next - 1;
        let building = node.begin_snapshot();
        let maker = std::thread::spawn(move || runtime().block_on(building).unwrap().position());
        while !maker.is_finished() {
            node.put("meanwhile");
        }
        let snapshot = maker.join().unwrap();
        let purge = node.opened.log.purge(snapshot.into());
        let purged = runtime().block_on(purge);
        assert!(purged.is_ok(), "round {round}: {:?}", folder.failures());
        caught_up += usize::from(snapshot.index > asked);
        if caught_up == 20 {
            let loaded = folder.crash_image().open().state.load().unwrap();
            assert!(
                loaded.applied >= Some(snapshot),
                "a kill right after the purge"
            );
            return;
        }
    }
    panic!("only {caught_up} snapshots of 200 held anything newer than what was asked for");
}

#[test]
fn a_purge_beyond_the_durable_state_stops_the_node() {
    let folder = Folder::new();
    let mut node = Replica::new(&folder);
    for _ in 0..5 {
        node.put("x");
    }
    let last = at(node.next - 1);
    assert!(
        runtime()
            .block_on(node.opened.log.purge(last.into()))
            .is_err()
    );
    assert_eq!(folder.failures().len(), 1, "{:?}", folder.failures());
}

/// A log whose end is lost (another disk, an old copy, a record that was dropped) is found out by
/// the state, which was never ahead of it.
#[test]
fn a_log_that_ends_before_the_state_is_refused() {
    let folder = Folder::with(|options| options.state.window = Duration::ZERO);
    let mut node = Replica::new(&folder);
    node.put("x");
    let old = folder.crash_image();
    for _ in 0..5 {
        node.put("x");
    }
    node.snapshot();
    let image = folder.crash_image();
    std::fs::remove_dir_all(image.path().join("log")).unwrap();
    copy_folder(&old.path().join("log"), &image.path().join("log")).unwrap();
    match image.try_open() {
        Err(OpenError::LogDamaged { detail, .. }) => {
            assert!(
                detail.contains("although the state has seen entry 6"),
                "{detail}"
            );
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it opened"),
    }
}

#[test]
fn a_log_that_begins_behind_the_state_is_refused() {
    let folder = Folder::with(|options| options.state.window = Duration::ZERO);
    let mut node = Replica::new(&folder);
    node.put("x");
    node.snapshot();
    let old = folder.crash_image();
    for _ in 0..5 {
        node.put("x");
    }
    let snapshot = node.snapshot().position();
    runtime()
        .block_on(node.opened.log.purge(snapshot.into()))
        .unwrap();
    node.put("x");
    eventually(
        || node.opened.log.flushed(),
        |flushed| *flushed == Some(node.next - 1),
    );
    let image = folder.crash_image();
    for part in ["state", "snapshots"] {
        std::fs::remove_dir_all(image.path().join(part)).unwrap();
        copy_folder(&old.path().join(part), &image.path().join(part)).unwrap();
    }
    assert!(matches!(
        image.try_open(),
        Err(OpenError::LogDamaged { .. })
    ));
}

/// The pointer is swapped before the log is purged; a crash between the two is no damage.
#[test]
fn a_crash_right_after_an_install_is_no_damage() {
    let folders = [(); 2].map(|()| Folder::with(|options| options.state.window = Duration::ZERO));
    let mut node = Replica::new(&folders[0]);
    for _ in 0..10 {
        node.put("x");
    }
    let snapshot = node.snapshot();
    let other = Replica::new(&folders[1]);
    let state = other.opened.state.clone();
    let mut receiver = state.receive_snapshot().unwrap();
    for file in snapshot.files() {
        receiver.begin(&file).unwrap();
        let len = usize::try_from(file.len).unwrap();
        receiver
            .write(&snapshot.read(&file.name, 0, len).unwrap())
            .unwrap();
    }
    receiver.finish().unwrap();
    other
        .block_on(async { state.install(receiver, snapshot.position()).await })
        .unwrap();

    let image = folders[1].crash_image();
    let mut again = Replica::load(image.open());
    assert_eq!(again.machine.digest(), node.machine.digest());
    assert_eq!(again.opened.log.last_index(), Some(0));
    // As Raft does when it finds that.
    runtime()
        .block_on(again.opened.log.purge(snapshot.position().into()))
        .unwrap();
    again.tell(vec![]);
    eventually(
        || again.opened.log.flushed(),
        |flushed| *flushed == Some(again.next - 1),
    );
    assert_eq!(image.failures(), [""; 0]);
}

#[test]
fn the_room_of_purged_entries_is_given_back() {
    let folder = Folder::with(|options| options.state.window = Duration::ZERO);
    let mut node = Replica::new(&folder);
    let lines: Vec<_> = (1..=300)
        .map(|index| {
            // Nothing here is compressed, but let it not depend on that.
            let noise: Vec<u8> = std::iter::repeat_with(rand::random).take(100_000).collect();
            let payload = Payload {
                batches: vec![noise.into()],
                ..Payload::default()
            };
            Entry::new_normal(log_id(index), payload)
        })
        .collect();
    let runtime = runtime();
    for chunk in lines.chunks(20) {
        runtime
            .block_on(append(&mut node.opened.log, chunk.to_vec()))
            .unwrap();
    }
    for _ in 0..300 {
        node.put("x");
    }
    let size = || -> u64 {
        let files = listing(&folder.path().join("log"));
        files.iter().map(|(_, len)| len).sum()
    };
    assert!(size() > 25_000_000, "{} bytes", size());
    let snapshot = node.snapshot().position();
    assert_eq!(snapshot.index, 300);
    runtime
        .block_on(node.opened.log.purge(snapshot.into()))
        .unwrap();
    // The next write says that it does not count any more.
    node.put("y");
    eventually(size, |size| *size < 5_000_000);
    assert_eq!(folder.failures(), [""; 0]);
}
