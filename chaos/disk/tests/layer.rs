//! The layer as a process sees it: through the kernel, with a real mount.

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use trellis_chaos_disk::Plug;

/// A mounted disk, or none where the system has no FUSE.
struct Story {
    plug: Plug,
    _folder: TempDir,
}

impl Story {
    fn begins() -> Option<Self> {
        if !Plug::is_possible() {
            let why = "mounting needs /dev/fuse and root";
            assert!(env::var_os("CI").is_none(), "{why}");
            println!("not told here: {why}");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let program = Path::new(env!("CARGO_BIN_EXE_trellis-chaos-disk"));
        let (mount, objects) = (folder.path().join("mount"), folder.path().join("objects"));
        let plug = Plug::mount(program, &mount, &objects, false).expect("it mounts");
        Some(Self {
            plug,
            _folder: folder,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.plug.path().join(name)
    }

    fn tell(&self, order: &str) -> serde_json::Value {
        self.plug.tell(order).expect(order)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect(name)
    }

    /// A file with these bytes, synced.
    fn kept(&self, name: &str, text: &str) -> File {
        let mut file = File::create(self.path(name)).expect("it is made");
        file.write_all(text.as_bytes()).expect("it is written");
        file.sync_all().expect("it is synced");
        file
    }
}

#[test]
fn what_was_synced_survives_a_power_cut_and_what_was_not_is_gone() {
    let Some(story) = Story::begins() else { return };
    let mut file = story.kept("file", "synced");
    file.write_all(b" and not").expect("it is written");
    fs::write(story.path("other"), "never synced").expect("it is written");
    assert_eq!(story.text("file"), "synced and not");

    let answer = story.tell("cut");
    assert_eq!(answer["lost"]["bytes"], 20, "{answer}");
    assert_eq!(story.text("file"), "synced");
    let gone = fs::read(story.path("other")).expect_err("it was never synced");
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    let dead = file
        .write_all(b"x")
        .expect_err("it was open before the cut");
    assert_eq!(dead.raw_os_error(), Some(5), "EIO");
}

#[test]
fn a_rename_needs_a_sync_of_its_folder_where_names_are_strict() {
    let Some(story) = Story::begins() else { return };
    story.tell("names strict");
    let folder = File::open(story.plug.path()).expect("the root");
    story.kept("CURRENT", "old");
    folder.sync_all().expect("a folder is synced");
    story.kept("CURRENT.new", "new");
    fs::rename(story.path("CURRENT.new"), story.path("CURRENT")).expect("it is renamed");
    story.tell("cut");
    assert_eq!(story.text("CURRENT"), "old");

    let folder = File::open(story.plug.path()).expect("the root");
    story.kept("CURRENT.new", "new");
    fs::rename(story.path("CURRENT.new"), story.path("CURRENT")).expect("it is renamed");
    folder.sync_all().expect("a folder is synced");
    story.tell("cut");
    assert_eq!(story.text("CURRENT"), "new");
}

#[test]
fn a_sync_fails_once_and_then_claims_to_succeed() {
    let Some(story) = Story::begins() else { return };
    story.tell("on sync fail EIO path=log* times=1");
    let mut other = File::create(story.path("other")).expect("it is made");
    other.write_all(b"x").expect("it is written");
    other.sync_all().expect("another file");
    let mut log = File::create(story.path("log")).expect("it is made");
    log.write_all(b"x").expect("it is written");
    let failed = log.sync_data().expect_err("once");
    assert_eq!(failed.raw_os_error(), Some(5), "EIO");
    log.sync_data().expect("only once");
    assert_eq!(story.plug.strikes().expect("counters"), 1);
}

#[test]
fn a_sync_that_lies_is_found_out_by_a_power_cut() {
    let Some(story) = Story::begins() else { return };
    story.kept("file", "true");
    story.tell("on sync lie");
    let file = OpenOptions::new().write(true).open(story.path("file"));
    let file = file.expect("it opens");
    file.write_all_at(b"lies", 0).expect("it is written");
    file.sync_all().expect("so it says");
    assert_eq!(story.text("file"), "lies");
    story.tell("cut");
    assert_eq!(story.text("file"), "true");
}

#[test]
fn a_sync_hangs_until_it_is_let_go_and_nobody_else_waits() {
    let Some(story) = Story::begins() else { return };
    let file = story.kept("file", "x");
    let rule = story.tell("on sync hang 60")["rule"].clone();
    let begin = Instant::now();
    let syncer = thread::spawn(move || file.sync_all());
    while story.plug.strikes().expect("counters") == 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "it never hung");
        thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(story.text("file"), "x", "reads go on");
    assert!(!syncer.is_finished());
    story.tell(&format!("off {rule}"));
    syncer
        .join()
        .expect("a thread")
        .expect("it succeeds in the end");
    assert!(begin.elapsed() < Duration::from_secs(50));
}

#[test]
fn a_slow_disk_takes_so_many_times_as_long() {
    let Some(story) = Story::begins() else { return };
    let file = story.kept("file", "x");
    story.tell("on sync slow 100");
    let begin = Instant::now();
    file.sync_all().expect("a sync");
    assert!(
        begin.elapsed() >= Duration::from_millis(20),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn there_is_no_room_for_some_and_then_for_nobody() {
    let Some(story) = Story::begins() else { return };
    let full =
        |result: io::Result<()>| result.expect_err("no room").kind() == ErrorKind::StorageFull;
    fs::create_dir(story.path("log")).expect("a folder");
    fs::create_dir(story.path("state")).expect("a folder");
    story.tell("on write fail ENOSPC path=log/*");
    assert!(full(fs::write(story.path("log/1"), "x")));
    fs::write(story.path("state/1"), "x").expect("there is room");
    story.tell("off all");
    fs::write(story.path("log/1"), "x").expect("there is room again");

    let used = story.tell("room all")["used"].as_u64().expect("a number");
    story.tell(&format!("room {}", used + 4096));
    let free = rustix::fs::statvfs(story.plug.path()).expect("df");
    assert_eq!(free.f_bavail * free.f_frsize, 4096);
    assert!(full(fs::write(story.path("state/2"), vec![0; 8_192])));
    fs::remove_file(story.path("state/2")).expect("removing needs no room");
    fs::write(story.path("state/3"), "x").expect("that fits");
}

#[test]
fn writes_are_lost_land_elsewhere_and_end_early() {
    let Some(story) = Story::begins() else { return };
    let file = story.kept("file", &"a".repeat(8_192));
    story.tell("on write lose times=1");
    file.write_all_at(b"b", 0).expect("so it says");
    assert!(story.text("file").starts_with('a'), "it is lost");
    story.tell("off all");
    story.tell("on write misdirect times=1");
    file.write_all_at(b"c", 0).expect("so it says");
    let text = story.text("file");
    assert_eq!((&text[..1], &text[4_096..4_097]), ("a", "c"));
    story.tell("off all");
    story.tell("on write short times=1");
    assert_eq!(file.write_at(b"1234", 0).expect("half of it"), 2);
}

#[test]
fn a_read_fails_where_it_was_told_to() {
    let Some(story) = Story::begins() else { return };
    story.kept("bad", "x");
    story.kept("good", "y");
    story.tell("on read fail EIO path=bad");
    let mut text = String::new();
    let mut file = File::open(story.path("bad")).expect("it opens");
    let failed = file.read_to_string(&mut text).expect_err("told to");
    assert_eq!(failed.raw_os_error(), Some(5), "EIO");
    assert_eq!(story.text("good"), "y");
}

#[test]
fn what_databases_ask_of_a_file_system_works() {
    let Some(story) = Story::begins() else { return };
    fs::create_dir_all(story.path("a/b")).expect("folders");
    let file = story.kept("a/b/1", "text");
    fs::hard_link(story.path("a/b/1"), story.path("a/2")).expect("a link");
    assert_eq!(story.text("a/2"), "text");
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, 1 << 20)
        .expect("room without size");
    assert_eq!(file.metadata().expect("stat").len(), 4);
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("a lock");
    let twin = File::open(story.path("a/2")).expect("it opens");
    rustix::fs::flock(&twin, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .expect_err("it is locked");
    let big = vec![7; 3 << 20];
    fs::write(story.path("big"), &big).expect("more than one request takes");
    assert_eq!(fs::read(story.path("big")).expect("it is there"), big);
    let mut names: Vec<_> = fs::read_dir(story.path("a"))
        .expect("a folder")
        .map(|item| {
            item.expect("a name")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    names.sort();
    assert_eq!(names, ["2", "b"]);
    fs::remove_dir(story.path("a")).expect_err("it is not empty");
    fs::remove_dir_all(story.path("a")).expect("all of it");
    assert!(!story.path("a").exists());
}

#[test]
fn an_order_that_makes_no_sense_is_refused_in_words() {
    let Some(story) = Story::begins() else { return };
    let refused = story.plug.tell("on sync explode").expect_err("no effect");
    assert!(refused.to_string().contains("\"explode\""), "{refused}");
    let refused = story.plug.tell("open sesame").expect_err("no order");
    assert!(refused.to_string().contains("help"), "{refused}");
    assert!(
        story.tell("help")["help"]
            .as_array()
            .is_some_and(|help| help.len() > 8)
    );
}
