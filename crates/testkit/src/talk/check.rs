use super::text::{BadText, Bindings};

/// One thing that must be so in a YAML dictionary.
#[derive(Clone, Debug)]
pub enum Check {
    /// This key has this value.
    Is {
        /// Which key.
        key: String,
        /// Which value.
        value: Value,
    },
    /// There is no such tube or job: the answer is `NOT_FOUND`.
    NotFound,
    /// Exactly these keys, in this order; only keys of our own (`trellis-…`) may follow.
    Keys(Vec<String>),
    /// Exactly these values are in double quotes, our own keys aside.
    Quoted(Vec<String>),
}

/// What a value must be.
#[derive(Clone, Debug)]
pub enum Value {
    /// This word.
    Word(String),
    /// A number from the first to the second, both included.
    Range(u64, u64),
    /// A variable and a number added to it; a new variable takes the value.
    Variable(String, i64),
    /// So many lower-case hexadecimal digits, written `hex(16)`.
    Hex(usize),
    /// Digits, a dot, six digits, written `seconds`.
    Seconds,
}

/// What must be so in a list of tubes.
#[derive(Clone, Debug)]
pub enum ListCheck {
    /// These entries in this order and no others.
    Is(Vec<String>),
    /// These entries in any order and no others.
    Holds(Vec<String>),
    /// At least these.
    Has(Vec<String>),
    /// None of these.
    Lacks(Vec<String>),
}

impl Check {
    pub(crate) fn parse_all(source: &str) -> Result<Vec<Self>, BadText> {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        if source == "NOT_FOUND" {
            return Ok(vec![Self::NotFound]);
        }
        if let Some(keys) = source.strip_prefix("keys ") {
            return Ok(vec![Self::Keys(words(keys))]);
        }
        if let Some(keys) = source.strip_prefix("quoted ") {
            return Ok(vec![Self::Quoted(words(keys))]);
        }
        source
            .split_whitespace()
            .map(|word| {
                let (key, value) = word
                    .split_once('=')
                    .ok_or_else(|| BadText(format!("{word:?} is no check")))?;
                Ok(Self::Is {
                    key: key.into(),
                    value: Value::parse(value)?,
                })
            })
            .collect()
    }

    /// Looks at an answer, `None` being `NOT_FOUND`; the error says what is wrong.
    pub(crate) fn look(&self, yaml: Option<&str>, bindings: &mut Bindings) -> Result<(), String> {
        let yaml = match (self, yaml) {
            (Self::NotFound, None) => return Ok(()),
            (_, None) => return Err("the answer is NOT_FOUND".into()),
            (_, Some(yaml)) => yaml,
        };
        let lines: Vec<(&str, &str)> = dictionary(yaml)?;
        let own = |key: &str| key.starts_with("trellis-");
        match self {
            Self::NotFound => Err("it is there".into()),
            Self::Is { key, value } => {
                let found = lines.iter().find(|(name, _)| name == key);
                let (_, found) = found.ok_or_else(|| format!("no key {key}"))?;
                let found = found.trim_matches('"');
                value
                    .look(found, bindings)
                    .map_err(|wanted| format!("{key} is {found}, not {wanted}"))
            }
            Self::Keys(keys) => {
                let found: Vec<_> = lines.iter().map(|(key, _)| *key).collect();
                let known = found.iter().filter(|key| !own(key)).count();
                let ours_last = found[known..].iter().all(|key| own(key));
                if found[..known].iter().eq(keys.iter()) && ours_last {
                    return Ok(());
                }
                Err(format!("the keys are {found:?}"))
            }
            Self::Quoted(keys) => {
                let quoted: Vec<_> = lines
                    .iter()
                    .filter(|(key, value)| {
                        !own(key) && value.starts_with('"') && value.ends_with('"')
                    })
                    .map(|(key, _)| *key)
                    .collect();
                if quoted.iter().eq(keys.iter()) {
                    return Ok(());
                }
                Err(format!("quoted are {quoted:?}"))
            }
        }
    }
}

impl Value {
    fn parse(source: &str) -> Result<Self, BadText> {
        let bad = || BadText(format!("{source:?} is no value"));
        if source == "seconds" {
            return Ok(Self::Seconds);
        }
        if let Some(digits) = source
            .strip_prefix("hex(")
            .and_then(|rest| rest.strip_suffix(')'))
        {
            return digits.parse().map(Self::Hex).map_err(|_| bad());
        }
        if let Some((low, high)) = source.split_once("..") {
            let number = |text: &str| text.parse().map_err(|_| bad());
            return Ok(Self::Range(number(low)?, number(high)?));
        }
        let Some(variable) = source.strip_prefix('$') else {
            return Ok(Self::Word(source.into()));
        };
        let sign = variable.find(['+', '-']).unwrap_or(variable.len());
        let (name, plus) = variable.split_at(sign);
        let plus = if plus.is_empty() {
            0
        } else {
            plus.parse().map_err(|_| bad())?
        };
        Ok(Self::Variable(name.into(), plus))
    }

    fn look(&self, found: &str, bindings: &mut Bindings) -> Result<(), String> {
        let is = |so: bool, wanted: String| if so { Ok(()) } else { Err(wanted) };
        match self {
            Self::Word(word) => is(found == word, word.clone()),
            Self::Range(low, high) => {
                let inside = found
                    .parse::<u64>()
                    .is_ok_and(|n| (*low..=*high).contains(&n));
                is(inside, format!("{low}..{high}"))
            }
            Self::Hex(digits) => {
                let hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
                is(
                    found.len() == *digits && found.chars().all(hex),
                    format!("{digits} hex digits"),
                )
            }
            Self::Seconds => {
                let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
                let (whole, decimals) = found.split_once('.').unwrap_or_default();
                let so = !whole.is_empty() && decimals.len() == 6;
                is(
                    so && all_digits(whole) && all_digits(decimals),
                    "seconds".into(),
                )
            }
            Self::Variable(name, _) if name == "_" => Ok(()),
            Self::Variable(name, plus) => {
                let Some(value) = bindings.get(name) else {
                    bindings.insert(name.clone(), found.into());
                    return Ok(());
                };
                if *plus == 0 {
                    return is(found == value, value.clone());
                }
                let wanted = value.parse().unwrap_or(0i64) + plus;
                is(found == wanted.to_string(), wanted.to_string())
            }
        }
    }
}

impl ListCheck {
    pub(crate) fn parse(source: &str) -> Result<Self, BadText> {
        let (verb, rest) = source.split_once(' ').unwrap_or((source, ""));
        let words = rest.split_whitespace().map(str::to_owned).collect();
        match verb {
            "is" => Ok(Self::Is(words)),
            "holds" => Ok(Self::Holds(words)),
            "has" => Ok(Self::Has(words)),
            "lacks" => Ok(Self::Lacks(words)),
            _ => Err(BadText(format!(
                "{verb:?} is none of is, holds, has, lacks"
            ))),
        }
    }

    pub(crate) fn look(&self, yaml: &str, bindings: &Bindings) -> Result<(), String> {
        let entries = list(yaml)?;
        let fill = |words: &[String]| -> Result<Vec<String>, String> {
            let fill = |word: &String| {
                let text = super::Text::parse(word).and_then(|text| text.fill(bindings));
                text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                    .map_err(|bad| bad.0)
            };
            words.iter().map(fill).collect()
        };
        let so = match self {
            Self::Is(words) => entries.iter().eq(fill(words)?.iter()),
            Self::Holds(words) => {
                let (mut found, mut wanted) = (entries.clone(), fill(words)?);
                found.sort_unstable();
                wanted.sort_unstable();
                found.iter().eq(wanted.iter())
            }
            Self::Has(words) => fill(words)?
                .iter()
                .all(|word| entries.contains(&word.as_str())),
            Self::Lacks(words) => !fill(words)?
                .iter()
                .any(|word| entries.contains(&word.as_str())),
        };
        if so {
            Ok(())
        } else {
            Err(format!("the list is {entries:?}"))
        }
    }
}

/// The entries of a dictionary, exact in form: `---`, then `key: value` lines, each ending in LF.
fn dictionary(yaml: &str) -> Result<Vec<(&str, &str)>, String> {
    body(yaml)?
        .map(|line| {
            line.split_once(": ")
                .ok_or_else(|| format!("{line:?} is no entry"))
        })
        .collect()
}

fn list(yaml: &str) -> Result<Vec<&str>, String> {
    body(yaml)?
        .map(|line| {
            line.strip_prefix("- ")
                .ok_or_else(|| format!("{line:?} is no entry"))
        })
        .collect()
}

fn body(yaml: &str) -> Result<impl Iterator<Item = &str>, String> {
    let text = yaml
        .strip_prefix("---\n")
        .ok_or("no --- at the beginning")?;
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("no LF at the end".into());
    }
    Ok(text.split_terminator('\n'))
}
