//! What survives a power cut, told without a kernel.

use std::ffi::OsStr;

use fuser::{Errno, FileType};
use tempfile::TempDir;

use super::{Disk, Keep, KeepNames, Lost, NameRule, ROOT};

struct Story {
    disk: Disk,
    _objects: TempDir,
}

impl Story {
    fn begins(rule: NameRule) -> Self {
        let objects = tempfile::tempdir().expect("a folder");
        let disk = Disk::new(objects.path(), rule).expect("a disk");
        Self {
            disk,
            _objects: objects,
        }
    }

    fn make(&mut self, path: &str, kind: FileType) -> u64 {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let folder = self.disk.find(folder).expect("the folder");
        let made = self
            .disk
            .create(folder, OsStr::new(name), kind, 0o644, (0, 0));
        made.expect("a new file")
    }

    fn file(&mut self, path: &str) -> u64 {
        self.make(path, FileType::RegularFile)
    }

    fn folder(&mut self, path: &str) -> u64 {
        self.make(path, FileType::Directory)
    }

    /// A file that was written and synced, name and all.
    fn kept(&mut self, path: &str, text: &str) -> u64 {
        let file = self.file(path);
        self.write(file, 0, text);
        self.disk.sync_all().expect("a sync");
        file
    }

    fn write(&mut self, file: u64, offset: u64, text: &str) {
        self.disk
            .write(file, offset, text.as_bytes())
            .expect("a write");
    }

    fn rename(&mut self, from: &str, to: &str) {
        let renamed = self
            .disk
            .rename((ROOT, OsStr::new(from)), (ROOT, OsStr::new(to)), false);
        renamed.expect("a rename");
    }

    fn cut(&mut self) -> Lost {
        let cut = self.disk.cut(Keep::Nothing, KeepNames::Nothing, 1);
        cut.expect("a power cut")
    }

    /// What a reader finds at a path.
    fn text(&self, path: &str) -> Result<String, Errno> {
        let bytes = self.disk.read(self.disk.find(path)?, 0, 1 << 20)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[test]
fn what_was_synced_survives_and_what_was_not_is_gone() {
    let mut story = Story::begins(NameRule::Journal);
    let letter = story.kept("letter", "Dear Ann");
    story.write(letter, 8, ", how are you?");
    assert_eq!(
        story.text("letter").as_deref(),
        Ok("Dear Ann, how are you?")
    );

    let lost = story.cut();
    assert_eq!(lost.bytes, 14);
    assert_eq!(story.text("letter").as_deref(), Ok("Dear Ann"));
    assert_eq!(
        story.cut(),
        Lost::default(),
        "there was nothing more to lose"
    );
}

#[test]
fn an_overwritten_page_and_a_cut_off_end_are_as_they_were() {
    let mut story = Story::begins(NameRule::Journal);
    let file = story.kept("file", &"a".repeat(10_000));
    story.write(file, 4_090, &"b".repeat(100));
    story.disk.resize(file, 5_000).expect("a truncation");
    story.write(file, 9_000, "c");
    let seen = story.text("file").expect("it is there");
    assert_eq!(seen.len(), 9_001);
    assert_eq!(&seen[4_089..4_091], "ab");
    assert!(seen[5_000..9_000].bytes().all(|byte| byte == 0), "a hole");

    story.cut();
    assert_eq!(story.text("file"), Ok("a".repeat(10_000)));

    story.disk.resize(file, 5_000).expect("a truncation");
    story.write(file, 9_000, "c");
    story.disk.sync(file).expect("a sync");
    story.cut();
    let kept = story.text("file").expect("it is there");
    assert_eq!((kept.len(), &kept[9_000..]), (9_001, "c"));
    assert!(kept[5_000..9_000].bytes().all(|byte| byte == 0), "a hole");
}

#[test]
fn a_name_is_durable_with_any_later_sync_as_a_journal_has_it() {
    let mut story = Story::begins(NameRule::Journal);
    let first = story.file("first");
    story.write(first, 0, "1");
    let second = story.file("second");
    story.write(second, 0, "2");
    story.disk.sync(second).expect("a sync");
    story.file("third");
    let lost = story.cut();
    assert_eq!(lost.names, 1);
    assert_eq!(story.text("second").as_deref(), Ok("2"));
    assert_eq!(
        story.text("first").as_deref(),
        Ok(""),
        "a name without bytes"
    );
    assert_eq!(story.text("third"), Err(Errno::ENOENT));
}

#[test]
fn a_name_is_durable_only_with_its_folder_as_posix_has_it() {
    let mut story = Story::begins(NameRule::Strict);
    let file = story.file("file");
    story.write(file, 0, "synced, and nobody finds it");
    story.disk.sync(file).expect("a sync");
    story.cut();
    assert_eq!(story.text("file"), Err(Errno::ENOENT));

    let file = story.file("file");
    story.write(file, 0, "found");
    story.disk.sync(file).expect("a sync");
    story.disk.sync(ROOT).expect("a sync");
    story.cut();
    assert_eq!(story.text("file").as_deref(), Ok("found"));
}

#[test]
fn a_rename_without_a_sync_leaves_the_old_file_under_each_name() {
    let mut story = Story::begins(NameRule::Strict);
    story.kept("CURRENT", "old");
    let new = story.file("CURRENT.new");
    story.write(new, 0, "new");
    story.disk.sync(new).expect("a sync");
    story.rename("CURRENT.new", "CURRENT");
    assert_eq!(story.text("CURRENT").as_deref(), Ok("new"));
    story.cut();
    assert_eq!(story.text("CURRENT").as_deref(), Ok("old"));
    assert_eq!(story.text("CURRENT.new"), Err(Errno::ENOENT));

    let new = story.file("CURRENT.new");
    story.write(new, 0, "new");
    story.disk.sync(new).expect("a sync");
    story.rename("CURRENT.new", "CURRENT");
    story.disk.sync(ROOT).expect("a sync");
    story.cut();
    assert_eq!(story.text("CURRENT").as_deref(), Ok("new"));
    assert_eq!(story.text("CURRENT.new"), Err(Errno::ENOENT));
}

#[test]
fn what_was_removed_comes_back_with_its_bytes_unless_that_was_synced() {
    let mut story = Story::begins(NameRule::Journal);
    story.kept("file", "text");
    let unlink = |story: &mut Story| {
        let name = OsStr::new("file");
        story.disk.unlink(ROOT, name, FileType::RegularFile)
    };
    unlink(&mut story).expect("it is removed");
    assert_eq!(story.text("file"), Err(Errno::ENOENT));
    story.cut();
    assert_eq!(story.text("file").as_deref(), Ok("text"));
    unlink(&mut story).expect("it is removed");
    story.disk.sync(ROOT).expect("a sync");
    story.cut();
    assert_eq!(story.text("file"), Err(Errno::ENOENT));
    let objects = std::fs::read_dir(story.disk.folder()).expect("a folder");
    assert_eq!(objects.count(), 0, "its object is gone, too");
}

#[test]
fn a_folder_and_a_second_name_are_gone_like_any_other() {
    let mut story = Story::begins(NameRule::Journal);
    let file = story.kept("file", "text");
    let folder = story.folder("folder");
    story
        .disk
        .link(file, folder, OsStr::new("twin"))
        .expect("a link");
    assert_eq!(story.text("folder/twin").as_deref(), Ok("text"));
    assert_eq!(story.disk.stat(file).map(|attr| attr.nlink), Ok(2));
    story.cut();
    assert_eq!(story.text("folder/twin"), Err(Errno::ENOENT));
    assert_eq!(story.disk.stat(file).map(|attr| attr.nlink), Ok(1));
    assert_eq!(story.text("file").as_deref(), Ok("text"));
}

#[test]
fn a_handle_of_before_the_cut_is_dead() {
    let mut story = Story::begins(NameRule::Journal);
    let file = story.kept("file", "text");
    let handle = story.disk.open(file).expect("it opens");
    assert_eq!(story.disk.check_handle(handle), Ok(()));
    story.cut();
    assert_eq!(story.disk.check_handle(handle), Err(Errno::EIO));
    story.disk.close(handle);
    assert_eq!(story.text("file").as_deref(), Ok("text"));
}

#[test]
fn a_torn_write_ends_at_any_byte_and_the_seed_says_where() {
    let ends: Vec<String> = (0..40)
        .map(|seed| {
            let mut story = Story::begins(NameRule::Journal);
            let file = story.kept("file", "0");
            story.write(file, 1, "123");
            story.write(file, 4, "456");
            let cut = story.disk.cut(Keep::Prefix, KeepNames::Nothing, seed);
            cut.expect("a power cut");
            story.text("file").expect("it is there")
        })
        .collect();
    for end in &ends {
        assert!("0123456".starts_with(end), "{end}");
    }
    for len in 1..=7 {
        assert!(
            ends.iter().any(|end| end.len() == len),
            "none of {len}: {ends:?}"
        );
    }
}

/// What a disk promises, and what those rely upon who write over what is there.
#[test]
fn what_is_written_over_durable_bytes_is_torn_at_sectors() {
    let mut seen = [0; 4];
    for seed in 0..60 {
        let mut story = Story::begins(NameRule::Journal);
        let file = story.kept("file", &"o".repeat(2_048));
        story.write(file, 256, &"n".repeat(1_280));
        let cut = story.disk.cut(Keep::Prefix, KeepNames::Nothing, seed);
        cut.expect("a power cut");
        let text = story.text("file").expect("it is there");
        let new = text.matches('n').count();
        let sectors = [0, 256, 768, 1_280].iter().position(|it| *it == new);
        seen[sectors.unwrap_or_else(|| panic!("{new} bytes"))] += 1;
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

#[test]
fn pages_survive_in_any_order_and_what_is_between_is_zero() {
    let mut holes = 0;
    for seed in 0..40 {
        let mut story = Story::begins(NameRule::Journal);
        let file = story.kept("file", "");
        story.write(file, 0, &"x".repeat(3 * 4096));
        let cut = story.disk.cut(Keep::Pages, KeepNames::Nothing, seed);
        let lost = cut.expect("a power cut");
        let text = story.text("file").expect("it is there");
        assert_eq!(lost.bytes + lost.bytes_kept, 3 * 4096);
        assert_eq!(text.matches('x').count() as u64, lost.bytes_kept);
        holes += u32::from(text.contains('\0'));
    }
    assert!(holes > 5, "{holes} of 40 have a hole");
}

#[test]
fn of_changes_of_names_the_first_survive() {
    let mut seen = [0; 4];
    for seed in 0..60 {
        let mut story = Story::begins(NameRule::Strict);
        for name in ["a", "b", "c"] {
            story.file(name);
        }
        let cut = story.disk.cut(Keep::Nothing, KeepNames::Prefix, seed);
        let kept = cut.expect("a power cut").names_kept as usize;
        let found = ["a", "b", "c"].map(|name| story.disk.find(name).is_ok());
        assert_eq!(found, [kept > 0, kept > 1, kept > 2]);
        seen[kept] += 1;
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

#[test]
fn a_small_disk_is_full_until_something_is_removed() {
    let mut story = Story::begins(NameRule::Journal);
    let file = story.file("file");
    let room = story.disk.used() + 8_192;
    story.disk.set_room(Some(room));
    story.write(file, 0, &"x".repeat(8_192));
    assert_eq!(story.disk.write(file, 8_192, b"x"), Err(Errno::ENOSPC));
    assert_eq!(story.disk.write(file, 0, b"over"), Ok(()), "no room needed");
    story.disk.resize(file, 100).expect("a truncation");
    assert_eq!(story.disk.write(file, 100, b"x"), Ok(()));
}

#[test]
fn a_flipped_bit_is_seen_and_stays() {
    let mut story = Story::begins(NameRule::Journal);
    let file = story.kept("file", "a");
    assert_eq!(story.disk.flip(file, 0, 1), Ok(true));
    assert_eq!(story.text("file").as_deref(), Ok("c"));
    story.cut();
    assert_eq!(story.text("file").as_deref(), Ok("c"));
    assert_eq!(
        story.disk.flip(file, 1, 1),
        Ok(false),
        "there is no such byte"
    );
}
