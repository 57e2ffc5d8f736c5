use std::{collections::BTreeSet, fmt, path::Path, time::Duration};

use super::{
    Audience, BadText, Check, Difference, DifferenceKind, Event, Line, ListCheck, Needs, Talk, Text,
};

/// A line that makes no sense in a talk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTalk {
    /// `file:line`
    pub place: String,
    /// What is wrong with it.
    pub wrong: String,
}

impl fmt::Display for BadTalk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.wrong)
    }
}

impl std::error::Error for BadTalk {}

/// Reads all talks of one file.
///
/// # Errors
///
/// The first line that makes no sense.
pub fn parse(file: &Path, source: &str) -> Result<Vec<Talk>, BadTalk> {
    let mut talks: Vec<Talk> = Vec::new();
    let mut block = None;
    for (index, raw) in source.lines().enumerate() {
        let number = index + 1;
        let wrong = |wrong: String| BadTalk {
            place: format!("{}:{number}", file.display()),
            wrong,
        };
        let text = raw.trim();
        if let Some(title) = text.strip_prefix("talk: ") {
            if block.is_some() {
                return Err(wrong("the block before is not ended".into()));
            }
            let stem = file.file_stem().unwrap_or_default().to_string_lossy();
            let tube = format!("{stem}.{}", talks.len() + 1);
            talks.push(Talk {
                file: file.to_owned(),
                title: title.into(),
                tube,
                edges: BTreeSet::new(),
                needs: Needs::default(),
                lines: Vec::new(),
                differences: Vec::new(),
            });
            continue;
        }
        if text.is_empty() {
            continue;
        }
        if let Some(comment) = text.strip_prefix('#') {
            if let Some(talk) = talks.last_mut() {
                talk.edges.extend(edges(comment));
            }
            continue;
        }
        let Some(talk) = talks.last_mut() else {
            return Err(wrong("a talk begins with `talk: <title>`".into()));
        };
        if let Some(mark) = text.strip_prefix('@') {
            directive(mark, talk, &mut block).map_err(wrong)?;
            continue;
        }
        let audience = match block {
            None => Audience::Everyone,
            Some(Some(audience)) => audience,
            Some(None) => return Err(wrong("say first for whom: @trellis or @beanstalkd".into())),
        };
        for event in events(text).map_err(|bad| wrong(bad.0))? {
            talk.lines.push(Line {
                number,
                source: text.into(),
                audience,
                event,
            });
        }
    }
    match (block, talks.last()) {
        (Some(_), Some(talk)) => {
            let wrong = "a block is not ended".into();
            Err(BadTalk {
                place: format!("{}: {}", file.display(), talk.title),
                wrong,
            })
        }
        _ => Ok(talks),
    }
}

/// The numbers behind `edge` or `edges` in a comment: `edge 5`, `edges 5, 7-9`.
fn edges(comment: &str) -> Vec<u32> {
    let comment = comment.trim();
    let list = comment
        .strip_prefix("edges ")
        .or_else(|| comment.strip_prefix("edge "));
    let mut edges = Vec::new();
    for part in list
        .unwrap_or_default()
        .split([',', ' '])
        .filter(|part| !part.is_empty())
    {
        let part = part.trim_end_matches([':', '.']);
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        match (low.parse::<u32>(), high.parse::<u32>()) {
            (Ok(low), Ok(high)) => edges.extend(low..=high),
            // The rest of the comment is prose.
            _ => break,
        }
    }
    edges
}

type Block = Option<Option<Audience>>;

fn directive(mark: &str, talk: &mut Talk, block: &mut Block) -> Result<(), String> {
    let (word, rest) = mark.split_once(' ').unwrap_or((mark, ""));
    match (word, block.is_some()) {
        ("alone", false) => talk.needs.alone = true,
        ("sockets", false) => talk.needs.sockets = true,
        ("fresh", false) => {
            talk.needs.fresh = Some(rest.split_whitespace().map(str::to_owned).collect());
        }
        ("differs" | "age", false) => {
            let kind = if word == "age" {
                DifferenceKind::Age
            } else {
                DifferenceKind::Deliberate
            };
            let (name, reason) = rest.split_once(": ").unwrap_or((rest, ""));
            talk.differences.push(Difference {
                kind,
                name: name.into(),
                reason: reason.into(),
            });
            *block = Some(None);
        }
        ("trellis", true) => *block = Some(Some(Audience::Trellis)),
        ("beanstalkd", true) => *block = Some(Some(Audience::Beanstalkd)),
        ("end", true) => *block = None,
        _ => return Err(format!("@{mark} makes no sense here")),
    }
    Ok(())
}

/// Most lines are one event; those that set a scene are short for several.
fn events(text: &str) -> Result<Vec<Event>, BadText> {
    let (who, rest) = text.split_once(' ').unwrap_or((text, ""));
    let exchange = |command: &str, reply: String| -> Result<[Event; 2], BadText> {
        let bytes = Text::parse(command)?.then(b"\r\n");
        Ok([
            Event::Says {
                who: who.into(),
                bytes,
            },
            hears(who.into(), &reply)?,
        ])
    };
    let mut events = Vec::new();
    let (uses, watches) = match (
        rest.strip_prefix("uses "),
        rest.strip_prefix("watches only "),
    ) {
        (Some(tube), _) => (Some(tube), ""),
        (_, Some(tubes)) => (None, tubes),
        _ => match rest.strip_prefix("works on ") {
            Some(tube) => (Some(tube), tube),
            None => return Ok(vec![event(text)?]),
        },
    };
    if let Some(tube) = uses {
        events.extend(exchange(&format!("use {tube}"), format!("USING {tube}"))?);
    }
    let mut count = 1;
    for tube in watches.split_whitespace() {
        count += 1;
        events.extend(exchange(
            &format!("watch {tube}"),
            format!("WATCHING {count}"),
        )?);
    }
    if count > 1 {
        events.extend(exchange(
            "ignore default",
            format!("WATCHING {}", count - 1),
        )?);
    }
    Ok(events)
}

fn event(text: &str) -> Result<Event, BadText> {
    match text {
        "from here" => return Ok(Event::FromHere),
        "server gets SIGUSR1" => return Ok(Event::Drains),
        "server is killed and starts again" => return Ok(Event::Restarts(None)),
        _ => {}
    }
    if let Some(flags) = text.strip_prefix("server is killed and starts again with ") {
        let flags = flags.split_whitespace().map(str::to_owned).collect();
        return Ok(Event::Restarts(Some(flags)));
    }
    if let Some(time) = text.strip_prefix("server stalls for ") {
        return Ok(Event::Stalls(duration(time)?));
    }
    if let Some(time) = text.strip_prefix("... ") {
        return Ok(Event::Passes(duration(time)?));
    }
    let end = text
        .find(|c: char| !c.is_ascii_lowercase() && c != ',')
        .unwrap_or(text.len());
    let (who, rest) = text.split_at(end);
    if who.is_empty() {
        return Err(BadText("a line begins with a name".into()));
    }
    let name = who.to_owned();
    if let Some(raw) = rest.strip_prefix(">> ") {
        return Ok(Event::Says {
            who: name,
            bytes: Text::parse(raw)?,
        });
    }
    if let Some(line) = rest
        .strip_prefix("> ")
        .or_else(|| (rest == ">").then_some(""))
    {
        let (line, body) = split_body(line)?;
        let mut bytes = line.then(b"\r\n");
        if let Some(body) = body {
            bytes = bytes.and(body).then(b"\r\n");
        }
        return Ok(Event::Says { who: name, bytes });
    }
    if let Some(reply) = rest.strip_prefix("< ") {
        return hears(name, reply);
    }
    if let Some((names, time)) = text.split_once(" silent ") {
        let who = names
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect();
        return Ok(Event::Silence {
            who,
            lasting: duration(time)?,
        });
    }
    match rest.trim_start() {
        "ends" => return Ok(Event::Ends(name)),
        "connects" => return Ok(Event::Connects(name)),
        "half-closes" => return Ok(Event::HalfCloses(name)),
        "hangs up" => return Ok(Event::HangsUp(name)),
        _ => {}
    }
    let (eventually, asked) = match rest.trim_start().strip_prefix("eventually ") {
        Some(asked) => (true, asked),
        None => (false, rest.trim_start()),
    };
    let (command, checks) = asked
        .split_once(": ")
        .ok_or_else(|| BadText(format!("{text:?} makes no sense")))?;
    let who = name;
    if command.starts_with("list-tubes") {
        let (command, check) = (Text::parse(command)?, ListCheck::parse(checks)?);
        return Ok(Event::Lists {
            who,
            command,
            eventually,
            check,
        });
    }
    if command.starts_with("stats") {
        let (command, checks) = (Text::parse(command)?, Check::parse_all(checks)?);
        return Ok(Event::Asks {
            who,
            command,
            eventually,
            checks,
        });
    }
    Err(BadText(format!("{command:?} is no question")))
}

fn hears(who: String, reply: &str) -> Result<Event, BadText> {
    let mut reply = reply;
    let (mut times, mut after) = (1, None);
    while let Some((before, note)) = reply.strip_suffix(')').and_then(|r| r.rsplit_once(" (")) {
        if let Some(count) = note.strip_prefix("x ") {
            times = count
                .parse()
                .map_err(|_| BadText(format!("{count:?} is no number")))?;
        } else if let Some(time) = note.strip_prefix("after ") {
            after = Some(duration(time)?);
        } else {
            break;
        }
        reply = before.trim_end();
    }
    let (line, body) = split_body(reply)?;
    Ok(Event::Hears {
        who,
        line,
        body,
        times,
        after,
    })
}

/// `line | body`; a body that is empty is written `line | `.
fn split_body(text: &str) -> Result<(Text, Option<Text>), BadText> {
    // An empty body loses the space behind its bar when the line is trimmed.
    let (line, body) = match text.strip_suffix(" |") {
        Some(line) => (line, Some("")),
        None => match text.split_once(" | ") {
            Some((line, body)) => (line, Some(body)),
            None => (text, None),
        },
    };
    Ok((Text::parse(line)?, body.map(Text::parse).transpose()?))
}

fn duration(text: &str) -> Result<Duration, BadText> {
    let seconds = text
        .strip_suffix(" s")
        .and_then(|number| number.parse().ok());
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| BadText(format!("{text:?} is no duration such as `1.5 s`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_names_edges() {
        assert_eq!(edges(" edge 5"), [5]);
        assert_eq!(edges(" edges 5, 7-9: and prose with 10"), [5, 7, 8, 9]);
        assert_eq!(edges(" no edge 5 here"), Vec::<u32>::new());
    }

    #[test]
    fn a_talk_is_read_with_its_blocks() {
        let source = "talk: one\n# edge 62\n@alone\nann> reserve\n@differs fifo: fair\n@trellis\n\
                      ann< TIMED_OUT (after 1.0 s)\n@beanstalkd\nbob silent 0.2 s\n@end\nann ends\n";
        let talks = parse(Path::new("x.talk"), source).expect("a talk");
        assert_eq!(talks.len(), 1);
        assert!(talks[0].edges.contains(&62) && talks[0].needs.alone);
        assert_eq!(talks[0].differences[0].reason, "fair");
        let audiences: Vec<_> = talks[0].lines.iter().map(|line| line.audience).collect();
        let (all, ours, theirs) = (Audience::Everyone, Audience::Trellis, Audience::Beanstalkd);
        assert_eq!(audiences, [all, ours, theirs, all]);
    }

    #[test]
    fn nonsense_is_named_with_its_place() {
        for line in [
            "ann",
            "ann silent long",
            "ann< X (after x s)",
            "@end",
            "ann stats-job 1",
        ] {
            let bad = parse(Path::new("x.talk"), &format!("talk: t\n{line}\n"));
            assert_eq!(bad.expect_err(line).place, "x.talk:2", "{line}");
        }
    }
}
