//! What is to go wrong: rules, and what they say of one operation.

use std::{fmt, str::FromStr, time::Duration};

use fuser::Errno;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde::Serialize;

/// Longest that anything is made to wait.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// What a process asks of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Bytes of a file.
    Read,
    /// The same, the other way.
    Write,
    /// fsync and fdatasync, of files and folders.
    Sync,
    /// A new file, folder or name; also a rename.
    Create,
    /// Opening what is there.
    Open,
}

/// What is done to an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// It fails and does nothing.
    Fail(Errno),
    /// It takes so long, and then does what it should.
    Delay(Duration),
    /// It takes so many times as long as it did.
    Slow(u32),
    /// A sync that says yes and makes nothing durable.
    Lie,
    /// A write that says yes and does nothing: what was there before stays.
    Lose,
    /// A write that lands one page further on.
    Misdirect,
    /// A write of which half is done, and says so.
    Short,
}

/// A rule: which operations, and what becomes of them.
///
/// In words: `OPERATION EFFECT [path=PATTERN] [after=N] [times=N] [chance=PERMILLE] [seed=N]`.
#[derive(Debug)]
pub struct Rule {
    operation: Option<Operation>,
    effect: Effect,
    /// `*` stands for any run of characters.
    path: String,
    /// So many that match are left alone first.
    after: u64,
    /// And so many are not, if it ends at all.
    times: Option<u64>,
    /// Out of a thousand.
    chance: u32,
    random: StdRng,
    matched: u64,
    hits: u64,
}

/// What the rules say of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fate {
    /// It fails.
    pub fails: Option<Errno>,
    /// It waits; for as long as this rule is there.
    pub waits: Option<(Duration, u64)>,
    /// Its own time counts so many times.
    pub slow: Option<u32>,
    /// [`Effect::Lie`].
    pub lies: bool,
    /// [`Effect::Lose`].
    pub loses: bool,
    /// [`Effect::Misdirect`].
    pub misdirects: bool,
    /// [`Effect::Short`].
    pub short: bool,
}

/// How often a rule did something.
#[derive(Clone, Debug, Serialize)]
pub struct Hits {
    /// Its number.
    pub rule: u64,
    /// In words.
    pub what: String,
    /// How often.
    pub hits: u64,
}

/// The rules in force.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<(u64, Rule)>,
    newest: u64,
}

impl Rules {
    /// Puts a rule in force and returns its number.
    pub fn add(&mut self, rule: Rule) -> u64 {
        self.newest += 1;
        self.rules.push((self.newest, rule));
        self.newest
    }

    /// Ends a rule, or all; how many that were.
    pub fn end(&mut self, number: Option<u64>) -> usize {
        let before = self.rules.len();
        self.rules
            .retain(|(rule, _)| number.is_some_and(|number| number != *rule));
        before - self.rules.len()
    }

    /// Whether a rule is in force.
    pub fn has(&self, number: u64) -> bool {
        self.rules.iter().any(|(rule, _)| *rule == number)
    }

    /// Whether there is any: without one, nobody needs to know a path.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What becomes of an operation. Of several rules that concern it all count.
    pub fn fate(&mut self, operation: Operation, path: &str) -> Fate {
        let mut fate = Fate::default();
        for (number, rule) in &mut self.rules {
            if !rule.strikes(operation, path) {
                continue;
            }
            match rule.effect {
                Effect::Fail(errno) => fate.fails = Some(errno),
                Effect::Delay(time) => fate.waits = Some((time, *number)),
                Effect::Slow(factor) => fate.slow = Some(factor),
                Effect::Lie => fate.lies = true,
                Effect::Lose => fate.loses = true,
                Effect::Misdirect => fate.misdirects = true,
                Effect::Short => fate.short = true,
            }
        }
        fate
    }

    /// How often each did something.
    pub fn hits(&self) -> Vec<Hits> {
        let hits = self.rules.iter().map(|(number, rule)| Hits {
            rule: *number,
            what: rule.to_string(),
            hits: rule.hits,
        });
        hits.collect()
    }
}

impl Rule {
    fn strikes(&mut self, operation: Operation, path: &str) -> bool {
        if self.operation.is_some_and(|it| it != operation) || !matches(&self.path, path) {
            return false;
        }
        if self.times.is_some_and(|times| self.hits >= times) {
            return false;
        }
        self.matched += 1;
        if self.matched <= self.after
            || (self.chance < 1_000 && self.random.random_range(0..1_000) >= self.chance)
        {
            return false;
        }
        self.hits += 1;
        true
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation {
            None => write!(f, "any")?,
            Some(operation) => {
                write!(f, "{}", format!("{operation:?}").to_lowercase())?;
            }
        }
        match self.effect {
            Effect::Fail(errno) => write!(f, " fail {}", name_of(errno))?,
            Effect::Delay(time) => write!(f, " delay {}", time.as_millis())?,
            Effect::Slow(factor) => write!(f, " slow {factor}")?,
            Effect::Lie => write!(f, " lie")?,
            Effect::Lose => write!(f, " lose")?,
            Effect::Misdirect => write!(f, " misdirect")?,
            Effect::Short => write!(f, " short")?,
        }
        write!(f, " path={}", self.path)
    }
}

/// Errors that a disk has.
const ERRORS: [(&str, Errno); 4] = [
    ("EIO", Errno::EIO),
    ("ENOSPC", Errno::ENOSPC),
    ("EROFS", Errno::EROFS),
    ("EDQUOT", Errno::EDQUOT),
];

fn name_of(errno: Errno) -> String {
    let known = ERRORS.iter().find(|(_, it)| *it == errno);
    known.map_or_else(|| errno.code().to_string(), |(name, _)| (*name).to_owned())
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let mut words = words.split_whitespace();
        let operation = match words.next().unwrap_or_default() {
            "read" => Some(Operation::Read),
            "write" => Some(Operation::Write),
            "sync" => Some(Operation::Sync),
            "create" => Some(Operation::Create),
            "open" => Some(Operation::Open),
            "any" => None,
            other => {
                return Err(format!(
                    "operation {other:?}; allowed are read, write, sync, create, open, any"
                ));
            }
        };
        let effect = effect(&mut words)?;
        let only = match effect {
            Effect::Lie => Some(Operation::Sync),
            Effect::Lose | Effect::Misdirect | Effect::Short => Some(Operation::Write),
            _ => None,
        };
        if only.is_some() && operation != only {
            return Err(format!("{effect:?} is nothing that {operation:?} can do"));
        }
        let mut rule = Self {
            operation,
            effect,
            path: "*".to_owned(),
            after: 0,
            times: None,
            chance: 1_000,
            random: StdRng::seed_from_u64(1),
            matched: 0,
            hits: 0,
        };
        for word in words {
            match word.split_once('=') {
                Some(("path", pattern)) => rule.path = pattern.to_owned(),
                Some(("after", n)) => rule.after = number(n)?,
                Some(("times", n)) => rule.times = Some(number(n)?),
                Some(("chance", n)) => rule.chance = number(n)?,
                Some(("seed", n)) => rule.random = StdRng::seed_from_u64(number(n)?),
                _ => {
                    return Err(format!(
                        "{word:?}; allowed are path=, after=, times=, chance=, seed="
                    ));
                }
            }
        }
        Ok(rule)
    }
}

fn effect<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<Effect, String> {
    let name = words.next().unwrap_or_default();
    let mut argument = || words.next().unwrap_or_default();
    let wait = |time: Duration| Effect::Delay(time.min(WAIT_MAX));
    Ok(match name {
        "fail" => {
            let wanted = argument();
            let known = ERRORS.iter().find(|(name, _)| *name == wanted);
            let (_, errno) = known.ok_or_else(|| {
                format!("error {wanted:?}; allowed are EIO, ENOSPC, EROFS, EDQUOT")
            })?;
            Effect::Fail(*errno)
        }
        "delay" => wait(Duration::from_millis(number(argument())?)),
        "hang" => wait(Duration::from_secs(number(argument())?)),
        "slow" => Effect::Slow(number(argument())?),
        "lie" => Effect::Lie,
        "lose" => Effect::Lose,
        "misdirect" => Effect::Misdirect,
        "short" => Effect::Short,
        other => {
            return Err(format!(
                "effect {other:?}; allowed are fail ERROR, delay MS, hang SECONDS, slow FACTOR, lie, lose, misdirect, short"
            ));
        }
    })
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

/// `*` stands for any run of characters, anything else for itself.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, rest)) => text
            .strip_prefix(before)
            .is_some_and(|left| (0..=left.len()).any(|at| ends_so(rest, left, at))),
    }
}

fn ends_so(pattern: &str, text: &str, at: usize) -> bool {
    text.get(at..).is_some_and(|rest| matches(pattern, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(words: &[&str]) -> Rules {
        let mut rules = Rules::default();
        for words in words {
            rules.add(words.parse().expect("a rule"));
        }
        rules
    }

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, wanted) in [
            ("*", "log/1.log", true),
            ("log/*", "log/1.log", true),
            ("log/*", "state/log/1", false),
            ("log/*.log", "log/MANIFEST-1", false),
            ("*.log", "log/1.log", true),
            ("FORMAT", "FORMAT", true),
            ("FORMAT", "FORMAT.new", false),
        ] {
            assert_eq!(matches(pattern, text), wanted, "{pattern} {text}");
        }
    }

    #[test]
    fn an_error_once_is_an_error_once() {
        let mut rules = rules(&["sync fail EIO path=log/* after=1 times=1"]);
        let mut fails = |operation, path| rules.fate(operation, path).fails.is_some();
        assert!(!fails(Operation::Write, "log/1.log"), "no sync");
        assert!(!fails(Operation::Sync, "state/1.sst"), "elsewhere");
        assert!(!fails(Operation::Sync, "log/1.log"), "left alone first");
        assert!(fails(Operation::Sync, "log/1.log"));
        assert!(!fails(Operation::Sync, "log/1.log"), "it was once");
        assert_eq!(rules.hits()[0].hits, 1);
    }

    #[test]
    fn the_same_seed_strikes_the_same_operations() {
        let struck = |seed: u64| {
            let mut rules = rules(&[&format!("sync lie chance=300 seed={seed}")]);
            let fates = (0..200).map(|_| rules.fate(Operation::Sync, "x").lies);
            fates.collect::<Vec<_>>()
        };
        assert_eq!(struck(7), struck(7));
        assert_ne!(struck(7), struck(8));
        let count = struck(7).iter().filter(|lies| **lies).count();
        assert!((20..120).contains(&count), "{count} of 200 at 300 ‰");
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (words, named) in [
            ("fsync fail EIO", "operation \"fsync\""),
            ("sync fail EPERM", "error \"EPERM\""),
            ("sync lose", "Lose"),
            ("write delay soon", "\"soon\" is no number"),
            ("write lose where=x", "\"where=x\""),
        ] {
            let error = words.parse::<Rule>().expect_err(words);
            assert!(error.contains(named), "{error}");
        }
    }
}
