//! `cargo xtask seeded-bugs`: plants one classic bug after the other and sees that a suite finds it.
//!
//! The suites are built once with all bugs in (`crates/types/src/seeded.rs`); `SEEDED_BUG` chooses one
//! for a run. Each bug has a story that was made to show it (`plan`), which is told without and with the
//! bug; if it notices nothing, or with `--every`, whole suites look, too. A bug that no suite finds is
//! a defect of the suites.

mod build;
mod hunt;
mod instrument;
mod plan;
mod report;

use std::path::Path;

use anyhow::{Context, bail};
use trellis_types::seeded::Bug;

use build::Suites;
use hunt::{Course, hunt};
use instrument::Instrument;
use report::{Found, Report};

/// What was asked for on the command line.
#[derive(Default)]
struct Asked {
    /// These bugs; all if none is named.
    only: Vec<Bug>,
    /// These instruments instead of those that are expected to find a bug.
    with: Vec<Instrument>,
    /// Goes on to the dearer instruments after one has found the bug.
    every: bool,
    /// Leaves the run without a bug out.
    no_control: bool,
}

/// Hunts. True if every bug was found, and nothing where none was planted.
pub(crate) fn run(root: &Path, args: &[String]) -> anyhow::Result<bool> {
    let asked = read(args)?;
    let bugs = match asked.only.is_empty() {
        true => Bug::ALL,
        false => &asked.only,
    };
    let instruments_of = |bug: Bug| match asked.with.is_empty() {
        true => plan::instruments(bug),
        false => &asked.with,
    };
    let mut suites = Suites::new(root)?;
    let mut report = Report::begin(root, &suites)?;
    // Unless instruments were named, a bug's own story is asked first.
    let story_of = |bug: Bug| asked.with.is_empty().then(|| plan::story(bug));
    let mut sound = true;
    if !asked.no_control {
        for bug in bugs {
            if let Some((instrument, name)) = story_of(*bug) {
                let course = hunt(&mut suites, instrument, None, Some(name))?;
                sound &= report.control(name, &course);
            }
        }
        let mut wanted: Vec<Instrument> = match asked.every || !asked.with.is_empty() {
            true => bugs
                .iter()
                .flat_map(|bug| instruments_of(*bug))
                .copied()
                .collect(),
            false => Vec::new(),
        };
        wanted.sort();
        wanted.dedup();
        for instrument in wanted {
            let course = hunt(&mut suites, instrument, None, None)?;
            sound &= report.control(instrument.name(), &course);
        }
        if !sound {
            bail!("something fails without a bug: nothing that is found now would prove anything");
        }
    }
    for bug in bugs {
        let mut found = Vec::new();
        let mut tried = Vec::new();
        let story = story_of(*bug).map(|(instrument, name)| (instrument, Some(name)));
        let suites_of = instruments_of(*bug)
            .iter()
            .map(|instrument| (*instrument, None));
        for (instrument, only) in story.into_iter().chain(suites_of) {
            let course = hunt(&mut suites, instrument, Some(*bug), only)?;
            let hit = matches!(course, Course::Found { .. });
            report.tried(*bug, instrument, &course);
            tried.push(instrument);
            if let Course::Found {
                test,
                message,
                after,
            } = course
            {
                found.push(Found {
                    instrument,
                    test,
                    message,
                    after,
                });
            }
            if hit && !asked.every {
                break;
            }
        }
        sound &= !found.is_empty();
        report.add(*bug, found, tried)?;
    }
    report.close()?;
    Ok(sound)
}

fn read(args: &[String]) -> anyhow::Result<Asked> {
    let mut asked = Asked::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--every" => asked.every = true,
            "--no-control" => asked.no_control = true,
            "--only" => {
                for name in args.next().context("--only BUG,BUG")?.split(',') {
                    let bug = Bug::named(name).with_context(|| {
                        let all: Vec<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
                        format!("there is no bug {name}; there are {}", all.join(", "))
                    })?;
                    asked.only.push(bug);
                }
            }
            "--with" => {
                for name in args
                    .next()
                    .context("--with INSTRUMENT,INSTRUMENT")?
                    .split(',')
                {
                    let instrument = Instrument::named(name).with_context(|| {
                        let all: Vec<_> = Instrument::ALL.iter().map(|one| one.name()).collect();
                        format!(
                            "there is no instrument {name}; there are {}",
                            all.join(", ")
                        )
                    })?;
                    asked.with.push(instrument);
                }
            }
            other => bail!("unknown: {other}; there are --only, --with, --every and --no-control"),
        }
    }
    Ok(asked)
}
