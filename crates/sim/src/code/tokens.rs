//! The words of PTX.

use super::image::ImageError;
use cuguard_sys::CUresult;

/// A word of PTX. Directives keep their dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// `.entry`
    Directive(&'a str),
    /// A name, an instruction or a register.
    Word(&'a str),
    Number(&'a str),
    Text,
    Sign(char),
}

/// The words of a text, with the lines that they are in.
#[derive(Clone, Debug)]
pub(super) struct Tokens<'a> {
    rest: &'a str,
    line: u32,
}

/// An error as the PTX compiler prints it.
pub(super) fn syntax_error(line: u32, message: &str) -> ImageError {
    ImageError {
        code: CUresult::INVALID_PTX,
        log: format!(
            "ptxas application ptx input, line {line}; fatal   : {message}\n\
             ptxas fatal   : Ptx assembly aborted due to errors"
        ),
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%')
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            rest: text,
            line: 1,
        }
    }

    /// What follows.
    pub(super) fn rest(&self) -> &'a str {
        self.rest
    }

    /// An error at the current line.
    pub(super) fn error(&self, message: &str) -> ImageError {
        syntax_error(self.line, message)
    }

    /// Takes bytes off the rest, which are whole characters.
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.line += taken.matches('\n').count() as u32;
        self.rest = rest;
        taken
    }

    /// Takes characters while a condition holds, after the first `skip` bytes.
    fn take_while(&mut self, skip: usize, holds: impl Fn(char) -> bool) -> &'a str {
        let tail = self.rest.get(skip..).unwrap_or_default();
        let end = tail.find(|c| !holds(c)).unwrap_or(tail.len());
        self.take(skip + end)
    }

    /// Skips white space and comments.
    fn skip_blank(&mut self) -> Result<(), ImageError> {
        loop {
            self.take_while(0, |c| c.is_whitespace());
            if self.rest.starts_with("//") {
                self.take_while(0, |c| c != '\n');
            } else if self.rest.starts_with("/*") {
                let Some(end) = self.rest.find("*/") else {
                    return Err(self.error("Unterminated comment"));
                };
                self.take(end + 2);
            } else {
                return Ok(());
            }
        }
    }

    /// The next word; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Token<'a>>, ImageError> {
        self.skip_blank()?;
        let Some(first) = self.rest.chars().next() else {
            return Ok(None);
        };
        Ok(Some(match first {
            '.' => Token::Directive(self.take_while(1, is_name)),
            '0'..='9' => Token::Number(self.take_while(0, |c| is_name(c) || c == '.')),
            '"' => {
                let end = self.rest.get(1..).and_then(|tail| tail.find('"'));
                let end = end.ok_or_else(|| self.error("Unterminated string"))?;
                self.take(end + 2);
                Token::Text
            }
            _ if is_name(first) => Token::Word(self.take_while(0, is_name)),
            _ => {
                self.take(first.len_utf8());
                Token::Sign(first)
            }
        }))
    }

    /// The next word, without taking it.
    pub(super) fn peek(&self) -> Result<Option<Token<'a>>, ImageError> {
        self.clone().next()
    }

    /// Takes the next word if it is this sign.
    pub(super) fn take_sign(&mut self, sign: char) -> Result<bool, ImageError> {
        let found = self.peek()? == Some(Token::Sign(sign));
        if found {
            self.next()?;
        }
        Ok(found)
    }

    /// The next word, which must be this sign.
    pub(super) fn sign(&mut self, sign: char) -> Result<(), ImageError> {
        match self.next()? {
            Some(Token::Sign(found)) if found == sign => Ok(()),
            found => Err(self.unexpected(found, &format!("'{sign}'"))),
        }
    }

    pub(super) fn name(&mut self) -> Result<&'a str, ImageError> {
        match self.next()? {
            Some(Token::Word(name)) => Ok(name),
            found => Err(self.unexpected(found, "a name")),
        }
    }

    pub(super) fn number(&mut self) -> Result<u64, ImageError> {
        match self.next()? {
            Some(Token::Number(text)) => {
                parse_integer(text).ok_or_else(|| self.error("Integer constant expected"))
            }
            found => Err(self.unexpected(found, "a number")),
        }
    }

    /// An error about a word that was just taken.
    pub(super) fn unexpected(&self, found: Option<Token<'a>>, wanted: &str) -> ImageError {
        let found = match found {
            Some(Token::Directive(text) | Token::Word(text) | Token::Number(text)) => {
                text.to_owned()
            }
            Some(Token::Text) => "string".to_owned(),
            Some(Token::Sign(sign)) => sign.to_string(),
            None => "end of file".to_owned(),
        };
        self.error(&format!(
            "Parsing error near '{found}': syntax error, {wanted} expected"
        ))
    }

    /// Skips until after the bracket that closes one already taken.
    pub(super) fn skip_brackets(&mut self, open: char, close: char) -> Result<(), ImageError> {
        let mut depth = 1_u32;
        while depth > 0 {
            match self.next()? {
                Some(Token::Sign(sign)) if sign == open => depth += 1,
                Some(Token::Sign(sign)) if sign == close => depth -= 1,
                Some(_) => {}
                None => return Err(self.unexpected(None, &format!("'{close}'"))),
            }
        }
        Ok(())
    }
}

/// An integer of PTX: decimal, `0x`, `0b` or octal, with or without `U`.
pub(super) fn parse_integer(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['U', 'u']);
    for (prefix, radix) in [("0x", 16), ("0X", 16), ("0b", 2), ("0B", 2)] {
        if let Some(digits) = digits.strip_prefix(prefix) {
            return u64::from_str_radix(digits, radix).ok();
        }
    }
    match digits.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => u64::from_str_radix(octal, 8).ok(),
        _ => digits.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<Token<'_>> {
        let mut tokens = Tokens::new(text);
        std::iter::from_fn(|| tokens.next().unwrap()).collect()
    }

    #[test]
    fn words_are_told_apart() {
        assert_eq!(
            all(".param.u64 a; // x\n/* y */ 7.0 \"a b\" %r<2>"),
            [
                Token::Directive(".param"),
                Token::Directive(".u64"),
                Token::Word("a"),
                Token::Sign(';'),
                Token::Number("7.0"),
                Token::Text,
                Token::Word("%r"),
                Token::Sign('<'),
                Token::Number("2"),
                Token::Sign('>'),
            ]
        );
        assert_eq!(all("\u{e9}"), [Token::Sign('\u{e9}')]);
    }

    #[test]
    fn errors_have_their_line() {
        let mut tokens = Tokens::new("\n\n/* open");
        let error = tokens.next().unwrap_err();
        assert!(error.log.contains("line 3;"), "{}", error.log);
    }

    #[test]
    fn integers() {
        for (text, value) in [
            ("10", Some(10)),
            ("0", Some(0)),
            ("010", Some(8)),
            ("0x1fU", Some(31)),
            ("0b11", Some(3)),
            ("7.0", None),
            ("0x", None),
        ] {
            assert_eq!(parse_integer(text), value, "{text}");
        }
    }
}
