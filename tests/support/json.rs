//! A reader that says whether a text is JSON, and nothing else.

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

/// Whether the text is one JSON value.
pub fn check(text: &str) -> Result<(), String> {
    let mut reader = Reader {
        text: text.trim().as_bytes(),
        at: 0,
    };
    reader.value()?;
    if reader.at == reader.text.len() {
        Ok(())
    } else {
        Err(format!("more text at byte {}", reader.at))
    }
}

impl Reader<'_> {
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn take(&mut self, what: &str) -> Result<(), String> {
        if self.text[self.at..].starts_with(what.as_bytes()) {
            self.at += what.len();
            return Ok(());
        }
        Err(format!("{what:?} expected at byte {}", self.at))
    }

    fn space(&mut self) {
        while self.peek().is_ascii_whitespace() {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Result<(), String> {
        self.space();
        match self.peek() {
            b'{' => self.list("{", "}", |reader| {
                reader.string()?;
                reader.space();
                reader.take(":")?;
                reader.value()
            }),
            b'[' => self.list("[", "]", Self::value),
            b'"' => self.string(),
            b't' => self.take("true"),
            b'f' => self.take("false"),
            b'n' => self.take("null"),
            _ => self.number(),
        }?;
        self.space();
        Ok(())
    }

    fn list(
        &mut self,
        open: &str,
        close: &str,
        mut element: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.take(open)?;
        self.space();
        if self.take(close).is_ok() {
            return Ok(());
        }
        loop {
            self.space();
            element(self)?;
            self.space();
            if self.take(close).is_ok() {
                return Ok(());
            }
            self.take(",")?;
        }
    }

    fn string(&mut self) -> Result<(), String> {
        self.take("\"")?;
        loop {
            match self.peek() {
                b'"' => return self.take("\""),
                b'\\' => match self.text.get(self.at + 1) {
                    Some(b'u') => {
                        let digits = self.text.get(self.at + 2..self.at + 6).unwrap_or_default();
                        if digits.len() != 4 || !digits.iter().all(u8::is_ascii_hexdigit) {
                            return Err(format!("bad escape at byte {}", self.at));
                        }
                        self.at += 6;
                    }
                    Some(escaped) if b"\"\\/bfnrt".contains(escaped) => self.at += 2,
                    _ => return Err(format!("bad escape at byte {}", self.at)),
                },
                0..0x20 => {
                    return Err(format!(
                        "a control character or the end at byte {}",
                        self.at
                    ));
                }
                _ => self.at += 1,
            }
        }
    }

    fn number(&mut self) -> Result<(), String> {
        let rest = &self.text[self.at..];
        let len = rest
            .iter()
            .take_while(|c| b"+-.eE0123456789".contains(c))
            .count();
        let number = std::str::from_utf8(&rest[..len]).unwrap_or_default();
        number
            .parse::<f64>()
            .map_err(|_| format!("no value at byte {}", self.at))?;
        self.at += len;
        Ok(())
    }
}
