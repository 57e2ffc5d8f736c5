use std::{
    collections::{BTreeMap, VecDeque},
    fmt, io,
    time::Duration,
};

use super::{Audience, BadText, Check, Event, Line, Talk, Text, text::Bindings};
use crate::stage::{Heard, Stage, Troupe};

/// How long an answer that should come soon may take. Generous: the machine may be busy.
const SOON: Duration = Duration::from_secs(10);

/// Between two tries of `eventually`.
const AGAIN: Duration = Duration::from_millis(10);

/// How many of the last bytes heard and said a failure shows.
const REMEMBERED: usize = 16;

/// Where a talk went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// `file:line`
    pub place: String,
    /// The talk's title.
    pub title: String,
    /// The line as written.
    pub line: String,
    /// What was wrong.
    pub wrong: String,
    /// The last words before it.
    pub before: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({})", self.place, self.title)?;
        for word in &self.before {
            writeln!(f, "      {word}")?;
        }
        write!(f, "    at  {}\n    but {}", self.line, self.wrong)
    }
}

/// Plays one talk to its end.
///
/// # Errors
///
/// The first line that does not go as written.
pub fn play(talk: &Talk, troupe: Troupe, stage: &mut dyn Stage) -> Result<(), Failure> {
    let mut player = Player {
        stage,
        people: BTreeMap::new(),
        bindings: Bindings::from([("t".into(), talk.tube.clone())]),
        mark: None,
        before: VecDeque::new(),
    };
    let others = match troupe {
        Troupe::Trellis => Audience::Beanstalkd,
        Troupe::Beanstalkd => Audience::Trellis,
    };
    let name = talk.file.display();
    if talk.needs.alone {
        let alone = player.wait_until_alone();
        alone.map_err(|wrong| player.failure(talk, name.to_string(), "(the beginning)", wrong))?;
    }
    for line in talk.lines.iter().filter(|line| line.audience != others) {
        let played = player.line(line);
        played.map_err(|wrong| {
            player.failure(talk, format!("{name}:{}", line.number), &line.source, wrong)
        })?;
    }
    let heard = player.nothing_unheard();
    heard.map_err(|wrong| player.failure(talk, name.to_string(), "(the end)", wrong))
}

struct Wrong(String);

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Self {
        Self(format!("the connection failed: {error}"))
    }
}

impl From<BadText> for Wrong {
    fn from(bad: BadText) -> Self {
        Self(bad.0)
    }
}

#[derive(Default)]
struct Person {
    /// Bytes that came and were not looked at yet.
    heard: Vec<u8>,
    ended: bool,
    spoke_at: Duration,
}

struct Player<'a> {
    stage: &'a mut dyn Stage,
    people: BTreeMap<String, Person>,
    bindings: Bindings,
    /// Where [`Event::FromHere`] stands, until it is used.
    mark: Option<Duration>,
    before: VecDeque<String>,
}

impl Player<'_> {
    fn line(&mut self, line: &Line) -> Result<(), Wrong> {
        match &line.event {
            Event::Says { who, bytes } => {
                let bytes = bytes.fill(&self.bindings)?;
                self.say(who, &bytes)
            }
            Event::Hears {
                who,
                line,
                body,
                times,
                after,
            } => (0..*times).try_for_each(|_| self.hear(who, line, body.as_ref(), *after)),
            Event::FromHere => {
                self.mark = Some(self.stage.now());
                Ok(())
            }
            Event::Silence { who, lasting } => self.silence(who, *lasting),
            Event::Ends(who) => self.end(who),
            Event::Connects(who) => {
                self.people.remove(who);
                self.present(who)
            }
            Event::HalfCloses(who) => {
                self.present(who)?;
                self.remember(format!("{who} half-closes"));
                Ok(self.stage.half_close(who)?)
            }
            Event::HangsUp(who) => {
                self.people.remove(who);
                self.remember(format!("{who} hangs up"));
                Ok(self.stage.close(who)?)
            }
            Event::Passes(time) => {
                self.stage.pass_time(*time);
                Ok(())
            }
            Event::Asks {
                who,
                command,
                eventually,
                checks,
            } => self.ask(who, command, *eventually, |yaml, bindings| {
                checks
                    .iter()
                    .try_for_each(|check| check.look(yaml, bindings))
            }),
            Event::Lists {
                who,
                command,
                eventually,
                check,
            } => self.ask(who, command, *eventually, |yaml, bindings| {
                check.look(yaml.unwrap_or_default(), bindings)
            }),
            Event::Drains => Ok(self.stage.drain()?),
            Event::Restarts(flags) => {
                self.people.clear();
                self.remember("server is killed and starts again".into());
                Ok(self.stage.restart(flags.as_deref())?)
            }
            Event::Stalls(time) => Ok(self.stage.stall(*time)?),
        }
    }

    /// Connects `who` if this is the first time that the name is mentioned.
    fn present(&mut self, who: &str) -> Result<(), Wrong> {
        if !self.people.contains_key(who) {
            self.stage.connect(who)?;
            self.people.insert(who.into(), Person::default());
        }
        Ok(())
    }

    fn person(&mut self, who: &str) -> Result<&mut Person, Wrong> {
        self.people
            .get_mut(who)
            .ok_or_else(|| Wrong(format!("{who} is not connected")))
    }

    fn say(&mut self, who: &str, bytes: &[u8]) -> Result<(), Wrong> {
        self.present(who)?;
        self.remember(format!("{who}> {}", shown(bytes)));
        let now = self.stage.now();
        self.person(who)?.spoke_at = now;
        Ok(self.stage.send(who, bytes)?)
    }

    fn hear(
        &mut self,
        who: &str,
        line: &Text,
        body: Option<&Text>,
        after: Option<Duration>,
    ) -> Result<(), Wrong> {
        let patience = after.unwrap_or_default() + SOON;
        let found = self.reply_line(who, patience)?;
        let now = self.stage.now();
        let waited = now.saturating_sub(self.person(who)?.spoke_at);
        if !line.matches(&found, &mut self.bindings)? {
            return Err(Wrong(format!("{who} hears {}", shown(&found))));
        }
        if let Some(announced) = announced_body(&found) {
            let mut bytes = self.take(who, announced + 2, SOON)?;
            let crlf = bytes.split_off(announced);
            if let Some(body) = body {
                let wanted = body.fill(&self.bindings)?;
                if bytes != wanted {
                    return Err(Wrong(format!("the body is {}", shown(&bytes))));
                }
            }
            if crlf != b"\r\n" {
                return Err(Wrong(format!("behind the body stands {}", shown(&crlf))));
            }
        } else if body.is_some() {
            return Err(Wrong("this reply has no body".into()));
        }
        let Some(after) = after else { return Ok(()) };
        let since = self
            .mark
            .take()
            .map_or(waited, |mark| now.saturating_sub(mark));
        let early = since + self.stage.early() < after;
        if early || waited > after + self.stage.late() {
            let (waited, after) = (waited.as_secs_f64(), after.as_secs_f64());
            return Err(Wrong(format!(
                "it came after {waited:.3} s instead of {after:.3} s"
            )));
        }
        Ok(())
    }

    /// The next line without its CRLF.
    fn reply_line(&mut self, who: &str, patience: Duration) -> Result<Vec<u8>, Wrong> {
        let until = self.stage.now() + patience;
        loop {
            let heard = &mut self.person(who)?.heard;
            if let Some(end) = heard.windows(2).position(|pair| pair == b"\r\n") {
                let mut line: Vec<u8> = heard.drain(..end + 2).collect();
                line.truncate(end);
                self.remember(format!("{who}< {}", shown(&line)));
                return Ok(line);
            }
            self.more(who, until)?;
        }
    }

    fn take(&mut self, who: &str, length: usize, patience: Duration) -> Result<Vec<u8>, Wrong> {
        let until = self.stage.now() + patience;
        while self.person(who)?.heard.len() < length {
            self.more(who, until)?;
        }
        Ok(self.person(who)?.heard.drain(..length).collect())
    }

    /// Waits for more bytes; none until then, or the end, is wrong.
    fn more(&mut self, who: &str, until: Duration) -> Result<(), Wrong> {
        let left = until.saturating_sub(self.stage.now());
        let ended = self.person(who)?.ended;
        let so_far = shown(&self.person(who)?.heard);
        if ended {
            return Err(Wrong(format!("the connection ended behind {so_far}")));
        }
        if left.is_zero() {
            return Err(Wrong(format!("{who} waits in vain, so far {so_far}")));
        }
        match self.stage.receive(who, left)? {
            Heard::Bytes(bytes) => self.person(who)?.heard.extend(bytes),
            Heard::End => self.person(who)?.ended = true,
            Heard::Nothing => {}
        }
        Ok(())
    }

    fn silence(&mut self, names: &[String], lasting: Duration) -> Result<(), Wrong> {
        let until = self.stage.now() + lasting;
        for who in names {
            self.present(who)?;
            let left = until.saturating_sub(self.stage.now());
            if self.person(who)?.heard.is_empty() {
                match self.stage.receive(who, left)? {
                    Heard::Bytes(bytes) => self.person(who)?.heard.extend(bytes),
                    Heard::End => return Err(Wrong(format!("{who}'s connection ended"))),
                    Heard::Nothing => {}
                }
            }
            let heard = &self.person(who)?.heard;
            if !heard.is_empty() {
                return Err(Wrong(format!("{who} hears {}", shown(heard))));
            }
        }
        Ok(())
    }

    fn end(&mut self, who: &str) -> Result<(), Wrong> {
        let until = self.stage.now() + SOON;
        loop {
            let person = self.person(who)?;
            if !person.heard.is_empty() {
                let heard = shown(&person.heard);
                return Err(Wrong(format!("{who} hears {heard}")));
            }
            if person.ended {
                self.remember(format!("{who} ends"));
                return Ok(());
            }
            self.more(who, until)?;
        }
    }

    fn ask(
        &mut self,
        who: &str,
        command: &Text,
        eventually: bool,
        look: impl Fn(Option<&str>, &mut Bindings) -> Result<(), String>,
    ) -> Result<(), Wrong> {
        let mut command = command.fill(&self.bindings)?;
        command.extend_from_slice(b"\r\n");
        let until = self.stage.now() + SOON;
        loop {
            self.say(who, &command)?;
            let line = self.reply_line(who, SOON)?;
            let yaml = match announced_body(&line) {
                Some(length) => {
                    let bytes = self.take(who, length + 2, SOON)?;
                    Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
                }
                None if line == b"NOT_FOUND" => None,
                None => return Err(Wrong(format!("{who} hears {}", shown(&line)))),
            };
            // A look that fails half-way must not leave variables behind.
            let mut bindings = self.bindings.clone();
            let wrong = match look(yaml.as_deref(), &mut bindings) {
                Ok(()) => {
                    self.bindings = bindings;
                    return Ok(());
                }
                Err(wrong) => wrong,
            };
            if !eventually || self.stage.now() >= until {
                return Err(Wrong(wrong));
            }
            self.stage.pass_time(AGAIN);
        }
    }

    /// Answers that nobody listened to are as wrong as missing ones.
    fn nothing_unheard(&mut self) -> Result<(), Wrong> {
        for (who, person) in &self.people {
            if !person.heard.is_empty() {
                return Err(Wrong(format!(
                    "{who} was also told {}",
                    shown(&person.heard)
                )));
            }
        }
        Ok(())
    }

    /// Connections of earlier talks may still be on their way out. The usher who waits for that
    /// stays, so that his own going does not disturb the figures.
    fn wait_until_alone(&mut self) -> Result<(), Wrong> {
        let checks = Check::parse_all("current-connections=1")?;
        self.ask("usher", &Text::parse("stats")?, true, |yaml, bindings| {
            checks
                .iter()
                .try_for_each(|check| check.look(yaml, bindings))
        })
    }

    fn failure(&mut self, talk: &Talk, place: String, line: &str, Wrong(wrong): Wrong) -> Failure {
        Failure {
            place,
            title: talk.title.clone(),
            line: line.into(),
            wrong,
            before: self.before.drain(..).collect(),
        }
    }

    fn remember(&mut self, word: String) {
        if self.before.len() == REMEMBERED {
            self.before.pop_front();
        }
        self.before.push_back(word);
    }
}

/// The length of the body that a reply's line announces.
fn announced_body(line: &[u8]) -> Option<usize> {
    let mut words = line.split(|byte| *byte == b' ');
    let place = match words.next()? {
        b"OK" => 0,
        b"RESERVED" | b"FOUND" => 1,
        _ => return None,
    };
    std::str::from_utf8(words.nth(place)?).ok()?.parse().ok()
}

fn shown(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 300;
    let text = bytes[..bytes.len().min(SHOWN_MAX)].escape_ascii();
    match bytes.len() {
        0..=SHOWN_MAX => format!("\"{text}\""),
        length => format!("\"{text}…\" ({length} bytes)"),
    }
}
