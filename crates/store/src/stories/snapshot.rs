use std::fs;

use trellis_consensus::{Loaded, Position, Snapshot, SnapshotReceiver, StateStore};

use super::replica::*;
use super::*;

fn hasty() -> Folder {
    Folder::with(|options| options.state.window = Duration::ZERO)
}

/// A node with some jobs, small and large.
fn busy(folder: &Folder) -> Replica {
    let mut node = Replica::new(folder);
    for n in 0..40 {
        node.put(format!("letter {n} ").repeat(n * 20));
    }
    node.tell(vec![reserve(), delete(trellis_types::JobId(3))]);
    node
}

/// What goes over the wire; `spoil` may change it.
fn send(
    snapshot: &dyn Snapshot,
    to: &dyn StateStore,
    spoil: impl Fn(&str, &mut Vec<u8>),
) -> io::Result<Box<dyn SnapshotReceiver>> {
    let mut receiver = to.receive_snapshot()?;
    for file in snapshot.files() {
        receiver.begin(&file)?;
        let mut offset = 0;
        while offset < file.len {
            let mut chunk = snapshot.read(&file.name, offset, 1_000)?.to_vec();
            offset += chunk.len() as u64;
            spoil(&file.name, &mut chunk);
            receiver.write(&chunk)?;
        }
    }
    receiver.finish()?;
    Ok(receiver)
}

fn install(
    node: &Replica,
    received: Box<dyn SnapshotReceiver>,
    of: Position,
) -> io::Result<Loaded> {
    let state = node.opened.state.clone();
    node.block_on(async move { state.install(received, of).await })
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|item| item.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_snapshot_installed_elsewhere_is_the_same_state() {
    let (here, there) = (hasty(), hasty());
    let node = busy(&here);
    let snapshot = node.snapshot();
    assert_eq!(snapshot.position(), at(node.next - 1));

    let mut other = Replica::new(&there);
    other.put("of another life");
    let received = send(snapshot.as_ref(), other.opened.state.as_ref(), |_, _| {}).unwrap();
    let loaded = install(&other, received, snapshot.position()).unwrap();
    assert_eq!(loaded.applied, Some(snapshot.position()));
    assert_eq!(loaded.machine.digest(), node.machine.digest());
    loaded.machine.check().unwrap();
    let current = other.opened.state.current_snapshot().unwrap().unwrap();
    assert_eq!(current.files(), snapshot.files());
    assert_eq!(
        names(&there.path().join("state")),
        ["2", "CURRENT"],
        "the old one is gone"
    );

    // It goes on from there, and finds itself there again.
    other.machine = loaded.machine;
    other.next = node.next;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let purge = other.opened.log.purge(at(node.next - 1).into());
    runtime.block_on(purge).unwrap();
    other.tell(vec![]);
    other.put("news");
    let owed = other.owe(trellis_types::JobId(40), "letter 39 ".len() * 39 * 20);
    assert_eq!(owed.read().unwrap(), "letter 39 ".repeat(39 * 20));
    other.settle();
    let digest = other.machine.digest();
    drop(owed);
    drop(other);
    assert_eq!(Replica::load(there.open()).machine.digest(), digest);
    assert_eq!(there.failures(), [""; 0]);
}

/// Faults D35.
#[test]
fn a_snapshot_damaged_on_its_way_is_refused() {
    let (here, there) = (hasty(), hasty());
    let node = busy(&here);
    let snapshot = node.snapshot();
    let other = Replica::new(&there);
    let digest = other.machine.digest();
    let to = other.opened.state.as_ref();
    let refused = send(snapshot.as_ref(), to, |name, chunk| {
        if name.ends_with(".sst") {
            chunk[0] ^= 1;
        }
    });
    assert_eq!(refused.err().unwrap().kind(), io::ErrorKind::InvalidData);
    let refused = send(snapshot.as_ref(), to, |_, chunk| {
        chunk.pop();
    });
    assert_eq!(refused.err().unwrap().kind(), io::ErrorKind::InvalidData);
    assert_eq!(names(&there.path().join("snapshots")), [""; 0]);
    other.settle();
    drop(other);
    assert_eq!(Replica::load(there.open()).machine.digest(), digest);
    assert_eq!(
        there.failures(),
        [""; 0],
        "the sender is to blame, not this disk"
    );
}

#[test]
fn a_snapshot_damaged_on_the_senders_disk_is_refused() {
    let (here, there) = (hasty(), hasty());
    let node = busy(&here);
    let snapshot = node.snapshot();
    let other = Replica::new(&there);
    let shelf = here.path().join("snapshots");
    let data = shelf.join(&names(&shelf)[0]).join("data");
    let victim = data.join(
        &snapshot
            .files()
            .iter()
            .find(|file| file.name.ends_with(".sst"))
            .unwrap()
            .name,
    );
    let mut bytes = fs::read(&victim).unwrap();
    bytes[10] ^= 1;
    fs::write(&victim, bytes).unwrap();
    let refused = send(snapshot.as_ref(), other.opened.state.as_ref(), |_, _| {});
    assert_eq!(refused.err().unwrap().kind(), io::ErrorKind::InvalidData);
}

/// Before it was summed up: all sums on the way are good. The sender finds what it reads itself, to
/// know of which entry the snapshot is; the receiver reads all but the bodies.
#[test]
fn a_snapshot_of_a_state_that_was_damaged_unnoticed_is_refused_and_not_installed() {
    let there = hasty();
    let other = Replica::new(&there);
    let digest = other.machine.digest();
    let mut found = Vec::new();
    for family in ["meta", "tubes", "jobs", "origins"] {
        let here = hasty();
        let node = busy(&here);
        damage_table_of(&node, &here, family);
        let building = node.begin_snapshot();
        let Ok(snapshot) = node.block_on(building) else {
            found.push((family, "by the sender"));
            continue;
        };
        let refused = send(snapshot.as_ref(), other.opened.state.as_ref(), |_, _| {});
        let Err(error) = refused else {
            panic!("a snapshot with damaged {family} was accepted");
        };
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{family}");
        found.push((family, "by the receiver"));
    }
    assert!(
        found.contains(&("jobs", "by the receiver")),
        "nothing got as far as the receiver: {found:?}"
    );
    assert_eq!(there.failures(), [""; 0], "the sender is to blame");
    assert_eq!(names(&there.path().join("snapshots")), [""; 0]);
    other.settle();
    drop(other);
    assert_eq!(Replica::load(there.open()).machine.digest(), digest);
}

/// Reading them all would take as long as sending them. A body is looked at when it is read.
#[test]
fn a_snapshot_with_a_damaged_body_is_accepted_and_is_whole_but_for_that() {
    let (here, there) = (hasty(), hasty());
    let node = busy(&here);
    damage_table_of(&node, &here, "bodies");
    let snapshot = node.snapshot();
    let other = Replica::new(&there);
    let received = send(snapshot.as_ref(), other.opened.state.as_ref(), |_, _| {}).unwrap();
    let installed = install(&other, received, snapshot.position()).unwrap();
    assert_eq!(installed.machine.digest(), node.machine.digest());
    installed.machine.check().unwrap();
    assert_eq!(there.failures(), [""; 0]);
}

/// Flips a bit in the table that holds the rows of `family` once all is written. Which of the tables
/// that is, RocksDB says otherwise every time.
fn damage_table_of(node: &Replica, folder: &Folder, family: &str) {
    node.settle();
    node.opened.state.flush();
    let state = folder.path().join("state/1");
    let options = rocksdb::Options::default();
    let families = rocksdb::DB::list_cf(&options, &state).unwrap();
    let db = rocksdb::DB::open_cf_for_read_only(&options, &state, families, false).unwrap();
    let tables = db.live_files().unwrap();
    let [table] = tables
        .iter()
        .filter(|table| table.column_family_name == family)
        .collect::<Vec<_>>()[..]
    else {
        panic!("not one table of {family}: {tables:?}");
    };
    let path = state.join(table.name.trim_start_matches('/'));
    let mut bytes = fs::read(&path).unwrap();
    bytes[10] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn files_with_surprising_names_are_refused() {
    let folder = hasty();
    let node = Replica::new(&folder);
    for name in [
        "../../FORMAT",
        "a/b",
        "",
        ".hidden",
        "LOCK",
        "LOG.old.1",
        "000001.log",
    ] {
        let mut receiver = node.opened.state.receive_snapshot().unwrap();
        let file = trellis_consensus::SnapshotFile {
            name: name.to_owned(),
            len: 1,
            crc32c: 0,
        };
        let refused = receiver.begin(&file).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{name:?}");
    }
}

/// Rule 4: what a snapshot is of is read from it, and rule 5: a wrong one changes nothing.
#[test]
fn a_snapshot_of_another_entry_than_promised_leaves_the_state_alone() {
    let (here, there) = (hasty(), hasty());
    let node = busy(&here);
    let snapshot = node.snapshot();
    let mut other = Replica::new(&there);
    let received = send(snapshot.as_ref(), other.opened.state.as_ref(), |_, _| {}).unwrap();
    let refused = install(&other, received, at(999)).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    other.put("life goes on");
    other.settle();
    let digest = other.machine.digest();
    drop(other);
    assert_eq!(Replica::load(there.open()).machine.digest(), digest);
}

#[test]
fn a_snapshot_stays_readable_while_a_newer_one_takes_its_place() {
    let folder = hasty();
    let mut node = busy(&folder);
    let first = node.snapshot();
    node.put("news");
    let second = node.snapshot();
    assert!(second.position() > first.position());
    let file = first
        .files()
        .into_iter()
        .find(|file| file.name.ends_with(".sst"))
        .unwrap();
    assert_eq!(
        first.read(&file.name, 0, usize::MAX).unwrap().len() as u64,
        file.len
    );
    assert_eq!(names(&folder.path().join("snapshots")).len(), 2);
    drop(first);
    assert_eq!(names(&folder.path().join("snapshots")).len(), 1);

    let again = node.snapshot();
    assert_eq!(
        again.position(),
        second.position(),
        "nothing happened since"
    );
    let position = second.position();
    drop((second, again, node));
    let current = folder.open().state.current_snapshot().unwrap().unwrap();
    assert_eq!(current.position(), position);
}

#[test]
fn an_install_overtakes_a_snapshot_that_is_being_made() {
    let (here, there) = (hasty(), hasty());
    let node = busy(&here);
    let snapshot = node.snapshot();
    let other = Replica::new(&there);
    let building = other.begin_snapshot();
    let received = send(snapshot.as_ref(), other.opened.state.as_ref(), |_, _| {}).unwrap();
    install(&other, received, snapshot.position()).unwrap();
    let built = other.block_on(building).unwrap();
    assert_eq!(
        built.position(),
        snapshot.position(),
        "its own is thrown away"
    );
    assert_eq!(names(&there.path().join("snapshots")).len(), 1);
}

/// The same while the maker is at it, and with nothing else on the shelf yet.
#[test]
fn an_install_overtakes_the_first_snapshot_while_it_waits_for_the_disk() {
    let (here, there) = (hasty(), hasty());
    let node = busy(&here);
    let snapshot = node.snapshot();
    let (opened, disk) = there.open_faulty();
    let mut other = Replica::load(opened);
    disk.hang(true);
    other.apply(&open_origin());
    let building = other.begin_snapshot();
    let maker = std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.build().unwrap().block_on(building)
    });
    eventually(|| other.opened.state.is_building(), |building| *building);
    let received = send(snapshot.as_ref(), other.opened.state.as_ref(), |_, _| {}).unwrap();
    install(&other, received, snapshot.position()).unwrap();
    let built = maker.join().unwrap().map(|built| built.position());
    assert_eq!(built.unwrap(), snapshot.position());
    assert_eq!(there.failures(), [""; 0]);
    disk.hang(false);
}

/// Readers look at the old machine until the installed one takes its place, which is after the old
/// windows went.
#[test]
fn a_body_that_is_asked_for_during_an_install_is_no_damage() {
    let (here, there) = (hasty(), Folder::with(|_| {}));
    let node = busy(&here);
    let snapshot = node.snapshot();
    let gone = trellis_types::JobId(3);
    let mut other = Replica::new(&there);
    for _ in 0..3 {
        other.put("of another life");
    }
    let received = send(snapshot.as_ref(), other.opened.state.as_ref(), |_, _| {}).unwrap();
    let loaded = install(&other, received, snapshot.position()).unwrap();
    let owed = other.owe(gone, "of another life".len());
    assert_eq!(owed.ready(), None);
    assert!(owed.read().is_err());
    assert_eq!(there.failures(), [""; 0]);

    // From the next entry on what is not there is missing.
    other.machine = loaded.machine;
    other.next = node.next;
    other.block_on(async {
        let mut log = other.opened.log.clone();
        log.purge(at(node.next - 1).into()).await.unwrap();
    });
    other.tell(vec![]);
    assert!(owed.read().is_err());
    assert_eq!(there.failures(), [""; 0]);
    assert!(other.owe(gone, 15).read().is_err());
    assert_eq!(there.failures().len(), 1, "{:?}", there.failures());
}

/// A leader would send it for ever to one who needs entries that are purged.
#[test]
fn a_snapshot_older_than_the_installed_state_is_removed_at_start() {
    let (here, there) = (hasty(), hasty());
    let node = busy(&here);
    let snapshot = node.snapshot();
    let other = Replica::new(&there);
    assert!(other.snapshot().position() < snapshot.position());
    let before = there.crash_image();
    let received = send(snapshot.as_ref(), other.opened.state.as_ref(), |_, _| {}).unwrap();
    install(&other, received, snapshot.position()).unwrap();
    // Killed when the state was installed and its snapshot not yet on the shelf.
    let image = there.crash_image();
    let shelf = image.path().join("snapshots");
    fs::remove_dir_all(&shelf).unwrap();
    copy_folder(&before.path().join("snapshots"), &shelf).unwrap();
    let again = Replica::load(image.open());
    assert_eq!(again.machine.digest(), node.machine.digest());
    assert!(again.opened.state.current_snapshot().unwrap().is_none());
    assert_eq!(names(&shelf), [""; 0]);
    assert_eq!(again.snapshot().position(), snapshot.position());
}

#[test]
fn a_crash_leaves_no_halves_behind() {
    let (here, there) = (hasty(), hasty());
    let node = busy(&here);
    let snapshot = node.snapshot();
    let other = busy(&there);
    other.snapshot();
    let mut receiver = other.opened.state.receive_snapshot().unwrap();
    receiver.begin(&snapshot.files()[0]).unwrap();
    // Killed while one snapshot comes in and a generation is half made.
    fs::create_dir_all(there.path().join("state/2")).unwrap();
    let image = there.crash_image();
    assert_eq!(names(&image.path().join("snapshots")).len(), 2);
    let again = Replica::load(image.open());
    assert_eq!(again.machine.digest(), other.machine.digest());
    assert_eq!(names(&image.path().join("snapshots")).len(), 1);
    assert_eq!(names(&image.path().join("state")), ["1", "CURRENT"]);
}

#[test]
fn a_damaged_manifest_is_as_good_as_none() {
    let folder = hasty();
    let node = busy(&folder);
    node.snapshot();
    let image = folder.crash_image();
    let shelf = image.path().join("snapshots");
    let manifest = shelf.join(&names(&shelf)[0]).join("manifest");
    let mut bytes = fs::read(&manifest).unwrap();
    bytes[7] ^= 1;
    fs::write(&manifest, bytes).unwrap();
    let again = Replica::load(image.open());
    assert!(again.opened.state.current_snapshot().unwrap().is_none());
    assert_eq!(again.snapshot().position(), at(node.next - 1));
}
