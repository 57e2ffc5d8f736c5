//! The fault report, from what runs have written and from nothing else.

mod faults;
mod read;

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use anyhow::Result;

use crate::account::{Account, Word};
use faults::FAULTS;
use read::{Disk, Results, Seeded, Sim};

/// Reads all results in a folder and writes the report.
///
/// # Errors
///
/// A line of results can't be understood, or the report can't be written.
pub fn write(results: &Path, report: &Path) -> Result<()> {
    let results = Results::read(results)?;
    fs::write(report, text(&results)?)?;
    Ok(())
}

/// The report. Deterministic: the same results give the same text.
fn text(results: &Results) -> Result<String> {
    let mut out = String::new();
    write!(
        out,
        "# Fault report\n\n\
         What was broken, how often, and what clients saw of it. `make fault-report` writes this file from the results that\n\
         runs left behind; no number in it comes from a hand. An outcome is *unknown* if a client was told nothing; it is\n\
         never counted as done or lost. A run whose faults did nothing, or whose clients were told too little, is\n\
         *rejected* and counts for nothing. Invariants (I1 and so on) are explained in `crates/checker/src/invariant.rs`.\n\n"
    )?;
    runs(&mut out, results)?;
    table(&mut out, results)?;
    unsound(&mut out, results)?;
    disks(&mut out, &results.disks)?;
    seeded(&mut out, &results.seeded)?;
    write!(
        out,
        "\n## Again\n\n\
         `make chaos SEED=n STORY='name'` tells one story again: the same things are broken in the same order. Real processes\n\
         are not deterministic, so what happens between may differ; the simulation's runs are the same to the byte\n\
         (`make sim SEED=n`).\n"
    )?;
    Ok(out)
}

/// What ran.
fn runs(out: &mut String, results: &Results) -> Result<()> {
    let chaos = &results.chaos;
    write!(
        out,
        "## What ran\n\n\
         | instrument | runs | sound | broken | rejected | acknowledged | unknown |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n"
    )?;
    let count = |word| chaos.iter().filter(|it| it.verdict == word).count();
    writeln!(
        out,
        "| chaos: real processes, networks and disks | {} | {} | {} | {} | {} | {} |",
        chaos.len(),
        count(Word::Sound),
        count(Word::Broken),
        count(Word::Rejected),
        chaos.iter().map(|it| it.acknowledged).sum::<u64>(),
        chaos.iter().map(|it| it.unknown).sum::<u64>(),
    )?;
    let sims = &results.sims;
    let sound = sims.iter().filter(|it| it.sound).count();
    writeln!(
        out,
        "| simulation: whole nodes, network and disk simulated | {} | {sound} | {} | {} | {} | {} |",
        sims.len(),
        sims.iter().filter(|it| !it.sound && !it.rejected).count(),
        sims.iter().filter(|it| it.rejected).count(),
        sims.iter().map(|it| it.acknowledged).sum::<u64>(),
        sims.iter().map(|it| it.unknown).sum::<u64>(),
    )?;
    let disks = &results.disks;
    let count = |word| {
        let of = disks.iter().filter(|it| it.account.verdict == word);
        of.count()
    };
    writeln!(
        out,
        "| disk stories: real processes on disks that fail on command | {} | {} | {} | {} | {} | {} |",
        disks.len(),
        count(Word::Sound),
        count(Word::Broken),
        count(Word::Rejected),
        disks.iter().map(|it| it.account.acknowledged).sum::<u64>(),
        disks.iter().map(|it| it.account.unknown).sum::<u64>(),
    )?;
    let sound: Vec<&Account> = chaos
        .iter()
        .filter(|it| it.verdict == Word::Sound)
        .collect();
    let mut rates: Vec<f64> = sound.iter().map(|it| it.rate()).collect();
    rates.sort_by(f64::total_cmp);
    if let (Some(least), Some(most)) = (rates.first(), rates.last()) {
        write!(
            out,
            "\nIn chaos' sound runs {least:.0} to {most:.0} operations a second were acknowledged while somebody could do so, over\n\
             {:.0} minutes of load. Invariants decided in each: {}.\n",
            sound.iter().map(|it| it.seconds).sum::<f64>() / 60.0,
            sound[0].invariants.join(", ")
        )?;
    }
    let mut versions: Vec<&str> = chaos.iter().map(|it| it.version.as_str()).collect();
    versions.extend(sims.iter().map(|it| it.commit.as_str()));
    versions.retain(|version| !version.is_empty());
    versions.sort_unstable();
    versions.dedup();
    let mut seeds: Vec<u64> = chaos.iter().map(|it| it.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    writeln!(out, "\nVersions: {}.", versions.join("; "))?;
    writeln!(out, "Seeds of chaos: {}.", listed(&seeds))?;
    let mut seeds: Vec<u64> = sims.iter().map(|it| it.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    if !seeds.is_empty() {
        writeln!(out, "Seeds of the simulation: {}.", listed(&seeds))?;
    }
    Ok(())
}

/// Numbers, runs of them as `from-to`.
fn listed(numbers: &[u64]) -> String {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, to)) if *to + 1 == *number => *to = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let part = |(from, to): (u64, u64)| match from == to {
        true => from.to_string(),
        false => format!("{from}-{to}"),
    };
    let parts: Vec<String> = parts.into_iter().map(part).collect();
    parts.join(", ")
}

/// One line for each fault of the list.
fn table(out: &mut String, results: &Results) -> Result<()> {
    write!(
        out,
        "\n## The faults\n\n\
         Times: how often it took effect in sound runs, alone and during another fault. Acknowledged and unknown: of the chaos\n\
         stories in which it occurred. Gap: the longest time in which no client of the nodes that were not concerned (of any, if\n\
         all were) was acknowledged anything, from when it was broken alone until all nodes were ready again; median and\n\
         longest.\n\n\
         | fault | what | chaos: times | acknowledged | unknown | gap, ms | simulation: times | disk stories | tests, and what can't be tried |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
    )?;
    for fault in FAULTS {
        let sound = results.chaos.iter().filter(|it| it.verdict == Word::Sound);
        let stories: Vec<&Account> = sound.filter(|it| occurs(it, fault.number)).collect();
        let all = stories
            .iter()
            .flat_map(|it| &it.faults)
            .filter(|it| it.fault == fault.number);
        let (alone, paired): (Vec<_>, Vec<_>) = all.partition(|it| it.with.is_none());
        let mut gaps: Vec<u64> = alone.iter().map(|it| it.gap_ms).collect();
        gaps.sort_unstable();
        let times = match (fault.number, stories.len(), alone.len(), paired.len()) {
            (BALANCED, stories @ 1.., ..) => format!("{stories} stories through HAProxy"),
            (_, _, 0, 0) => String::new(),
            (_, _, alone, 0) => alone.to_string(),
            (_, _, alone, paired) => format!("{alone} + {paired}"),
        };
        let of = |what: fn(&Account) -> u64| match stories.is_empty() {
            true => String::new(),
            false => stories.iter().map(|it| what(it)).sum::<u64>().to_string(),
        };
        let gap = match (gaps.get(gaps.len() / 2), gaps.last()) {
            (Some(median), Some(longest)) => format!("{median} / {longest}"),
            _ => String::new(),
        };
        let sims: u64 = results
            .sims
            .iter()
            .filter(|it| it.sound)
            .filter_map(|it| it.faults.get(&fault.number))
            .sum();
        let sims = if sims == 0 {
            String::new()
        } else {
            sims.to_string()
        };
        let mut disks: BTreeMap<&str, usize> = BTreeMap::new();
        for Disk { account, .. } in &results.disks {
            let times = account.faults.iter().filter(|it| it.fault == fault.number);
            let times = times.count();
            if account.verdict == Word::Sound && times > 0 {
                *disks.entry(&account.story).or_default() += times;
            }
        }
        let disks: Vec<String> = disks
            .into_iter()
            .map(|(story, times)| format!("{story}: {times}"))
            .collect();
        let tests = fault.tests.iter().map(|test| format!("`{test}`"));
        let words = tests.chain(fault.but.map(str::to_owned));
        writeln!(
            out,
            "| {} | {} | {times} | {} | {} | {gap} | {sims} | {} | {} |",
            fault.number,
            fault.what,
            of(|it| it.acknowledged),
            of(|it| it.unknown),
            disks.join(", "),
            words.collect::<Vec<_>>().join("; ")
        )?;
    }
    Ok(())
}

/// A load balancer in front is no nemesis but the way of a whole story.
const BALANCED: u32 = 20;

fn occurs(story: &Account, fault: u32) -> bool {
    story.faults.iter().any(|it| it.fault == fault) || (fault == BALANCED && story.balanced)
}

/// What was not sound, with what replays it.
fn unsound(out: &mut String, results: &Results) -> Result<()> {
    let chaos = results.chaos.iter().filter(|it| it.verdict != Word::Sound);
    let chaos = chaos.map(|it| {
        let word = if it.verdict == Word::Broken {
            "broken"
        } else {
            "rejected"
        };
        let replay = format!("`{}`", it.replay());
        (
            word,
            replay,
            it.version.clone(),
            it.why.first().cloned().unwrap_or_default(),
        )
    });
    let sims = results.sims.iter().filter(|it| !it.sound).map(|it: &Sim| {
        let word = if it.rejected { "rejected" } else { "broken" };
        let replay = format!("`make sim SEED={}`", it.seed);
        (word, replay, it.commit.clone(), it.why.clone())
    });
    let all: Vec<_> = chaos.chain(sims).collect();
    write!(out, "\n## What was not sound\n\n")?;
    if all.is_empty() {
        writeln!(out, "Nothing.")?;
        return Ok(());
    }
    for (word, replay, version, why) in all {
        // A heading alone says nothing.
        let first = why.lines().next().unwrap_or_default();
        let why = match first.ends_with(':') {
            true => why.lines().last().unwrap_or_default(),
            false => first,
        };
        // Where a run had its files is of no use to anybody else.
        let words = why.split(' ').map(|word| match word.contains("/tmp/") {
            true => "…",
            false => word,
        });
        let why: String = words.collect::<Vec<_>>().join(" ");
        let why: String = why.chars().take(300).collect();
        writeln!(out, "- {word}: {replay} at {version}: {why}")?;
    }
    Ok(())
}

fn disks(out: &mut String, disks: &[Disk]) -> Result<()> {
    if disks.is_empty() {
        return Ok(());
    }
    write!(
        out,
        "\n## Disk stories\n\n\
         | story | seed | faults in effect | acknowledged | unknown | longest gap, ms | verdict | figures |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n"
    )?;
    for Disk {
        account: it,
        figures,
    } in disks
    {
        let verdict = match it.verdict {
            Word::Sound => "sound".to_owned(),
            Word::Broken => format!("broken: {}", it.why.join("; ")),
            Word::Rejected => format!("rejected: {}", it.why.join("; ")),
        };
        // Words that were said are for whoever repeats the story.
        let figures: Vec<_> = figures
            .iter()
            .filter(|(_, value)| value.is_number() || value.is_boolean())
            .map(|(name, value)| format!("{} {value}", name.replace('_', " ")))
            .collect();
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            it.story,
            it.seed,
            it.faults.len(),
            it.acknowledged,
            it.unknown,
            it.faults.iter().map(|it| it.gap_ms).max().unwrap_or(0),
            cell(&verdict),
            cell(&figures.join(", "))
        )?;
    }
    Ok(())
}

fn seeded(out: &mut String, seeded: &[Seeded]) -> Result<()> {
    if seeded.is_empty() {
        return Ok(());
    }
    let found = seeded.iter().filter(|it| it.found).count();
    write!(
        out,
        "\n## Seeded bugs\n\n\
         Classic bugs, planted one at a time in a build of its own: {found} of {} were found.\n\n\
         | bug | what it does | found by | after, s |\n\
         | --- | --- | --- | --- |\n",
        seeded.len()
    )?;
    for bug in seeded {
        let by: Vec<_> = bug
            .by
            .iter()
            .map(|by| format!("{} (`{}`)", by.instrument, by.test))
            .collect();
        let after: Vec<_> = bug.by.iter().map(|by| by.seconds.to_string()).collect();
        let by = match bug.found {
            true => by.join(", "),
            false => format!("not found; tried: {}", bug.tried.join(", ")),
        };
        writeln!(
            out,
            "| {} | {} | {} | {} |",
            bug.seeded_bug,
            cell(&bug.does),
            cell(&by),
            after.join(", ")
        )?;
    }
    Ok(())
}

/// Text that does not end its cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Fault;

    fn account(verdict: Word, gap_ms: u64, with: Option<&str>) -> Account {
        Account {
            instrument: "chaos".to_owned(),
            story: "kills".to_owned(),
            balanced: false,
            seed: 7,
            version: "0.1.0 (abc)".to_owned(),
            at: 1,
            seconds: 60.0,
            outage_seconds: 0.0,
            outage_answers: 0,
            acknowledged: 60_000,
            unknown: 3,
            invariants: vec!["I1".to_owned()],
            faults: vec![Fault {
                fault: 1,
                kind: "kill-leader".to_owned(),
                with: with.map(str::to_owned),
                seen: String::new(),
                nodes: Vec::new(),
                from: 0,
                to: 1,
                gap_ms,
            }],
            verdict,
            why: vec!["I1: lost".to_owned()],
            kept: None,
        }
    }

    #[test]
    fn only_sound_runs_count_and_the_others_are_named() {
        let results = Results {
            chaos: vec![
                account(Word::Sound, 700, None),
                account(Word::Sound, 900, None),
                account(Word::Sound, 9_000, Some("loss")),
                account(Word::Broken, 50_000, None),
            ],
            ..Results::default()
        };
        let text = text(&results).expect("a report");
        let line = text.lines().find(|line| line.starts_with("| 1 |"));
        let line = line.expect("a line for fault 1");
        let cells: Vec<&str> = line.split(" | ").collect();
        assert_eq!(cells[2..6], ["2 + 1", "180000", "9", "900 / 900"]);
        assert!(
            text.contains("- broken: `make chaos SEED=7 STORY='kills'` at 0.1.0 (abc): I1: lost")
        );
        assert_eq!(
            text.lines().filter(|line| line.starts_with("| ")).count(),
            // Two tables: three instruments and 52 faults, a heading and a rule each.
            3 + 52 + 4
        );
    }

    #[test]
    fn runs_of_seeds_are_short() {
        assert_eq!(listed(&[1, 2, 3, 7, 9, 10]), "1-3, 7, 9-10");
    }
}
