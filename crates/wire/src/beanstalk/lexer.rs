/// Walks over the arguments of one command line, by the lexical rules of section 2.
///
/// Each method takes what it names from the front and leaves the rest; `None` means that the line
/// is `BAD_FORMAT`.
#[derive(Clone, Copy)]
pub(crate) struct Lexer<'a> {
    rest: &'a [u8],
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// Spaces, then decimal digits up to 2^64-1; no sign (2.2).
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.skip_spaces();
        self.digits()
    }

    /// Spaces, then decimal digits up to 2^32-1; no sign (2.2).
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.u64().and_then(|value| u32::try_from(value).ok())
    }

    /// The bound of `kick`: whatever C's `strtoul` takes, cut to its low 32 bits (2.4).
    pub(crate) fn loose(&mut self) -> Option<u32> {
        // LF can stand inside a line because only CRLF ends one.
        while let [b' ' | b'\t' | b'\n' | 0x0B | 0x0C, rest @ ..] = self.rest {
            self.rest = rest;
        }
        let negative = match self.rest {
            [sign @ (b'+' | b'-'), rest @ ..] => {
                self.rest = rest;
                *sign == b'-'
            }
            _ => false,
        };
        let value = self.digits()?;
        Some(if negative {
            value.wrapping_neg()
        } else {
            value
        } as u32)
    }

    /// Optional spaces, then as many name characters as there are (`pause-tube` alone).
    pub(crate) fn name(&mut self) -> &'a [u8] {
        self.skip_spaces();
        let end = self
            .rest
            .iter()
            .position(|byte| !trellis_types::TubeName::allows(*byte))
            .unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        name
    }

    /// Nothing may follow, not even a space.
    pub(crate) fn end(&self) -> Option<()> {
        self.rest.is_empty().then_some(())
    }

    fn skip_spaces(&mut self) {
        while let [b' ', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    fn digits(&mut self) -> Option<u64> {
        let mut value = 0u64;
        let mut any = false;
        while let [digit @ b'0'..=b'9', rest @ ..] = self.rest {
            value = value
                .checked_mul(10)?
                .checked_add(u64::from(digit - b'0'))?;
            any = true;
            self.rest = rest;
        }
        any.then_some(value)
    }
}
