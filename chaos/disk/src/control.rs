//! Orders to a layer: one line each over a Unix socket, one line of JSON back.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::{UnixListener, UnixStream},
    str::FromStr,
    sync::{Arc, atomic::Ordering},
    thread,
};

use fuser::Errno;
use serde_json::{Value, json};

use crate::{
    disk::{Keep, KeepNames, NameRule},
    fault::Rule,
    layer::Layer,
};

/// What can be ordered.
pub const HELP: [&str; 14] = [
    "on OPERATION EFFECT [path=PATTERN] [after=N] [times=N] [chance=PERMILLE] [seed=N]: a rule; answers its number",
    "   OPERATION: read, write, sync, create, open, any; PATTERN from the mount point, * is any run of characters",
    "   EFFECT: fail EIO|ENOSPC|EROFS|EDQUOT, delay MS, hang SECONDS, slow FACTOR (of its own time)",
    "   EFFECT of sync: lie (yes, and nothing is durable); of write: lose, misdirect (a page further on), short (half)",
    "off N|all: ends a rule, or all; what hangs by it goes on",
    "cut [keep=nothing|prefix|pages] [names=nothing|prefix] [seed=N]: the power goes and comes back; answers what is lost",
    "   keep: of unsynced bytes nothing survives, the first written (torn at any byte), or any of the pages",
    "   names: of unsynced changes of names nothing survives, or those that were done first",
    "names strict|journal: names are durable when their folder is synced, or (as at first) with any later sync",
    "room BYTES|all: the disk holds so many bytes, or as many as the one beneath; df shows it",
    "flip PATH OFFSET BIT: turns over one bit of a file",
    "sync: everything is durable now",
    "counters: what happened, what is not durable, how often each rule struck, files by size",
    "end: unmounts and ends; help: this",
];

/// Serves orders until the process ends. `end` is called by the order of that name.
///
/// # Errors
///
/// A thread cannot be started.
pub fn serve(
    listener: UnixListener,
    layer: Arc<Layer>,
    end: impl Fn() + Send + Sync + 'static,
) -> std::io::Result<()> {
    let end = Arc::new(end);
    thread::Builder::new()
        .name("disk-orders".to_owned())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                let (layer, end) = (layer.clone(), end.clone());
                let hear = move || hear(stream, &layer, &*end);
                // Who cannot be heard sees the connection closed.
                let _ = thread::Builder::new().spawn(hear);
            }
        })?;
    Ok(())
}

fn hear(stream: UnixStream, layer: &Layer, end: &dyn Fn()) {
    let Ok(mut out) = stream.try_clone() else {
        return;
    };
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let ends = line.trim() == "end";
        let answer = match obey(layer, line.trim()) {
            Ok(answer) => answer,
            Err(error) => json!({ "error": error }),
        };
        if writeln!(out, "{answer}").is_err() {
            return;
        }
        if ends {
            end();
        }
    }
}

/// Carries one order out.
///
/// # Errors
///
/// What is wrong with it, in words.
pub fn obey(layer: &Layer, line: &str) -> Result<Value, String> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let mut words = rest.split_whitespace();
    let refused = |errno: Errno| {
        format!(
            "{line}: {}",
            std::io::Error::from_raw_os_error(errno.code())
        )
    };
    match verb {
        "on" => {
            let rule: Rule = rest.parse()?;
            Ok(json!({ "rule": layer.rules.lock().add(rule) }))
        }
        "off" => {
            let number = match rest {
                "all" => None,
                number => Some(parse(number)?),
            };
            Ok(json!({ "ended": layer.rules.lock().end(number) }))
        }
        "cut" => {
            let (mut keep, mut names, mut seed) = (Keep::Nothing, KeepNames::Nothing, 1);
            for word in words {
                match word.split_once('=') {
                    Some(("keep", "nothing")) => keep = Keep::Nothing,
                    Some(("keep", "prefix")) => keep = Keep::Prefix,
                    Some(("keep", "pages")) => keep = Keep::Pages,
                    Some(("names", "nothing")) => names = KeepNames::Nothing,
                    Some(("names", "prefix")) => names = KeepNames::Prefix,
                    Some(("seed", number)) => seed = parse(number)?,
                    _ => return Err(format!("{word:?}; see help")),
                }
            }
            let mut disk = layer.disk.lock();
            let lost = disk.cut(keep, names, seed).map_err(refused)?;
            layer.cuts.fetch_add(1, Ordering::SeqCst);
            Ok(json!({ "lost": lost }))
        }
        "names" => {
            let rule = match rest {
                "strict" => NameRule::Strict,
                "journal" => NameRule::Journal,
                other => return Err(format!("{other:?}; allowed are strict and journal")),
            };
            layer.disk.lock().set_rule(rule);
            Ok(json!({ "names": rest }))
        }
        "room" => {
            let room = match rest {
                "all" => None,
                bytes => Some(parse(bytes)?),
            };
            let mut disk = layer.disk.lock();
            disk.set_room(room);
            Ok(json!({ "room": room, "used": disk.used() }))
        }
        "flip" => {
            let path = words.next().unwrap_or_default();
            let offset = parse(words.next().unwrap_or_default())?;
            let bit = parse(words.next().unwrap_or_default())?;
            let mut disk = layer.disk.lock();
            let number = disk.find(path).map_err(refused)?;
            Ok(json!({ "flipped": disk.flip(number, offset, bit).map_err(refused)? }))
        }
        "sync" => {
            layer.disk.lock().sync_all().map_err(refused)?;
            Ok(json!({ "synced": true }))
        }
        "counters" => {
            let disk = layer.disk.lock();
            let (bytes, names) = disk.unsynced();
            Ok(json!({
                "done": layer.counts.now(),
                "cuts": layer.cuts.load(Ordering::SeqCst),
                "unsynced_bytes": bytes,
                "unsynced_names": names,
                "used": disk.used(),
                "rules": layer.rules.lock().hits(),
            }))
        }
        "end" => Ok(json!({ "ends": true })),
        "help" => Ok(json!({ "help": HELP })),
        other => Err(format!("{other:?} is no order; help lists them")),
    }
}

fn parse<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}
