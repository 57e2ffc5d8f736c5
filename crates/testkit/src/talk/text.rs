use std::{collections::BTreeMap, fmt};

/// Bytes with holes: literals, and variables such as `$job` or `$job+1`.
///
/// Written with the escapes `\r \n \t \0 \s` (space) `\\ \$ \{ \| \xNN` and repetition: `{ab*3}`
/// is `ababab`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Bytes(Vec<u8>),
    Variable { name: String, plus: u64 },
}

/// Why a text cannot be read, or filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadText(pub String);

impl fmt::Display for BadText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the variables of a talk stand for so far.
pub(crate) type Bindings = BTreeMap<String, String>;

impl Text {
    /// Reads the written form.
    ///
    /// # Errors
    ///
    /// An unknown escape, an unfinished repetition, or a `$` without a name.
    pub fn parse(source: &str) -> Result<Self, BadText> {
        let mut text = Self::default();
        let mut rest = source;
        while let Some(first) = rest.chars().next() {
            match first {
                '\\' => {
                    let (byte, length) = escape(rest)?;
                    text.push(&[byte]);
                    rest = &rest[length..];
                }
                '{' => {
                    let (inner, times, length) = repetition(rest)?;
                    for _ in 0..times {
                        for piece in &inner.0 {
                            match piece {
                                Piece::Bytes(bytes) => text.push(bytes),
                                Piece::Variable { .. } => text.0.push(piece.clone()),
                            }
                        }
                    }
                    rest = &rest[length..];
                }
                '$' => {
                    let name = word(&rest[1..], |c| c.is_ascii_alphanumeric() || c == '_');
                    if name.is_empty() {
                        return Err(BadText(
                            "a $ without a name (write \\$ for the sign)".into(),
                        ));
                    }
                    rest = &rest[1 + name.len()..];
                    let plus = rest
                        .strip_prefix('+')
                        .map_or("", |r| word(r, |c| c.is_ascii_digit()));
                    if !plus.is_empty() {
                        rest = &rest[1 + plus.len()..];
                    }
                    let plus = plus.parse().unwrap_or(0);
                    text.0.push(Piece::Variable {
                        name: name.into(),
                        plus,
                    });
                }
                other => {
                    text.push(other.encode_utf8(&mut [0; 4]).as_bytes());
                    rest = &rest[other.len_utf8()..];
                }
            }
        }
        Ok(text)
    }

    /// The same with `bytes` behind.
    pub fn then(mut self, bytes: &[u8]) -> Self {
        self.push(bytes);
        self
    }

    /// The same with another text behind.
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The bytes, with every variable filled in.
    pub(crate) fn fill(&self, bindings: &Bindings) -> Result<Vec<u8>, BadText> {
        let mut bytes = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Bytes(literal) => bytes.extend_from_slice(literal),
                Piece::Variable { name, plus } => {
                    let value = bound(bindings, name, *plus)?;
                    let value =
                        value.ok_or_else(|| BadText(format!("${name} is not known yet")))?;
                    bytes.extend_from_slice(value.as_bytes());
                }
            }
        }
        Ok(bytes)
    }

    /// Whether `heard` is this text; variables that stand for nothing yet take one word each.
    /// `$_` takes a word and forgets it.
    pub(crate) fn matches(&self, heard: &[u8], bindings: &mut Bindings) -> Result<bool, BadText> {
        let mut rest = heard;
        let mut new = Bindings::new();
        for piece in &self.0 {
            let literal = match piece {
                Piece::Bytes(literal) => literal.clone(),
                Piece::Variable { name, plus } => match bound(bindings, name, *plus)? {
                    Some(value) if name != "_" => value.into_bytes(),
                    _ => {
                        let end = rest.iter().position(|b| *b == b' ').unwrap_or(rest.len());
                        let word = String::from_utf8_lossy(&rest[..end]).into_owned();
                        if word.is_empty() {
                            return Ok(false);
                        }
                        new.insert(name.clone(), word);
                        rest = &rest[end..];
                        continue;
                    }
                },
            };
            match rest.strip_prefix(&literal[..]) {
                Some(after) => rest = after,
                None => return Ok(false),
            }
        }
        new.remove("_");
        bindings.extend(new);
        Ok(rest.is_empty())
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(Piece::Bytes(last)) = self.0.last_mut() {
            last.extend_from_slice(bytes);
        } else if !bytes.is_empty() {
            self.0.push(Piece::Bytes(bytes.to_vec()));
        }
    }
}

fn bound(bindings: &Bindings, name: &str, plus: u64) -> Result<Option<String>, BadText> {
    let Some(value) = bindings.get(name) else {
        return Ok(None);
    };
    if plus == 0 {
        return Ok(Some(value.clone()));
    }
    let number: u64 = value
        .parse()
        .map_err(|_| BadText(format!("${name} is {value:?}, not a number")))?;
    Ok(Some((number + plus).to_string()))
}

fn word(text: &str, belongs: impl Fn(char) -> bool) -> &str {
    let end = text.find(|c| !belongs(c)).unwrap_or(text.len());
    &text[..end]
}

fn escape(rest: &str) -> Result<(u8, usize), BadText> {
    let bytes = rest.as_bytes();
    let byte = match bytes.get(1) {
        Some(b'r') => b'\r',
        Some(b'n') => b'\n',
        Some(b't') => b'\t',
        Some(b'0') => 0,
        Some(b's') => b' ',
        Some(sign @ (b'\\' | b'$' | b'{' | b'|')) => *sign,
        Some(b'x') => {
            let digits = rest.get(2..4).unwrap_or_default();
            let byte = u8::from_str_radix(digits, 16)
                .map_err(|_| BadText(format!("\\x{digits} is no byte")))?;
            return Ok((byte, 4));
        }
        _ => return Err(BadText(format!("unknown escape at {rest:?}"))),
    };
    Ok((byte, 2))
}

/// `{text*3}`; the text may hold escapes and variables but no other repetition.
fn repetition(rest: &str) -> Result<(Text, usize, usize), BadText> {
    let unfinished = || BadText(format!("unfinished repetition at {rest:?}"));
    let end = rest.find('}').ok_or_else(unfinished)?;
    let (inner, times) = rest[1..end].rsplit_once('*').ok_or_else(unfinished)?;
    let times = times.parse().map_err(|_| unfinished())?;
    Ok((Text::parse(inner)?, times, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(source: &str) -> Vec<u8> {
        let bindings = Bindings::from([("job".into(), "7".into())]);
        Text::parse(source)
            .and_then(|text| text.fill(&bindings))
            .expect(source)
    }

    #[test]
    fn escapes_repetitions_and_variables() {
        assert_eq!(filled(r"a\r\n\0\s\\\$\{\|\xff"), b"a\r\n\0 \\${|\xff");
        assert_eq!(filled(r"{ab*3}-{\r\n*2}"), b"ababab-\r\n\r\n");
        assert_eq!(filled("peek $job $job+1"), b"peek 7 8");
        assert!(Text::parse(r"\q").is_err());
        assert!(Text::parse("{a*").is_err());
        assert!(Text::parse("$ ").is_err());
    }

    #[test]
    fn a_new_variable_takes_a_word_and_a_known_one_compares() {
        let mut bindings = Bindings::new();
        let text = Text::parse("RESERVED $a 1").expect("text");
        assert_eq!(text.matches(b"RESERVED 12 1", &mut bindings), Ok(true));
        assert_eq!(bindings.get("a").map(String::as_str), Some("12"));
        assert_eq!(text.matches(b"RESERVED 13 1", &mut bindings), Ok(false));
        assert_eq!(text.matches(b"RESERVED 12 1 ", &mut bindings), Ok(false));
    }
}
