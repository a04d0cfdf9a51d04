//! The tokens of PTX.

use crate::error::LoadError;

/// A token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    /// `.entry`: one component, with its dot.
    Directive(&'a str),
    /// A name, a register with its component (`%tid.x`), or an opcode with its modifiers (`ld.global.u32`).
    Word(&'a str),
    /// An integer literal.
    Integer(Integer),
    /// `0f3F800000`: the bits of a single.
    Single(u32),
    /// `0d3FF0000000000000` or `1.0`: the bits of a double.
    Double(u64),
    /// The text between the quotes.
    Text(&'a str),
    /// Any other character.
    Sign(char),
}

/// The value of an integer literal or of a constant expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Integer {
    /// The bits, in two's complement.
    pub(crate) bits: u64,
    /// Whether it is a `.u64` rather than a `.s64`.
    pub(crate) is_unsigned: bool,
}

/// A token with its position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'a> {
    pub(crate) token: Token<'a>,
    pub(crate) line: u32,
}

/// Splits a text into tokens. Comments are skipped.
pub(crate) fn tokens(text: &str) -> Result<Vec<Placed<'_>>, LoadError> {
    let mut lexer = Lexer {
        text,
        at: 0,
        line: 1,
    };
    let mut found = Vec::with_capacity(text.len() / 4);
    while let Some(token) = lexer.next()? {
        let line = lexer.line;
        found.push(Placed { token, line });
    }
    Ok(found)
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

fn starts_name(c: u8) -> bool {
    c.is_ascii_alphabetic() || matches!(c, b'_' | b'$' | b'%')
}

fn continues_name(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$')
}

impl<'a> Lexer<'a> {
    fn byte(&self, ahead: usize) -> u8 {
        let bytes = self.text.as_bytes();
        bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn error(&self, message: impl Into<String>) -> LoadError {
        LoadError::new(self.line, message)
    }

    fn skip_space(&mut self) -> Result<(), LoadError> {
        loop {
            match (self.byte(0), self.byte(1)) {
                (b'\n', _) => {
                    self.line += 1;
                    self.at += 1;
                }
                (b' ' | b'\t' | b'\r' | 0x0b | 0x0c, _) => self.at += 1,
                (b'/', b'/') => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                (b'/', b'*') => {
                    let Some(len) = self.rest()[2..].find("*/") else {
                        return Err(self.error("the comment has no end"));
                    };
                    let comment = &self.rest()[..len + 4];
                    self.line += comment.matches('\n').count() as u32;
                    self.at += comment.len();
                }
                _ => return Ok(()),
            }
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn next(&mut self) -> Result<Option<Token<'a>>, LoadError> {
        self.skip_space()?;
        let Some(first) = self.rest().chars().next() else {
            return Ok(None);
        };
        let token = match self.byte(0) {
            b'.' if starts_name(self.byte(1)) => Token::Directive(self.directive()),
            b'.' if self.byte(1).is_ascii_digit() => self.number()?,
            b'%' if !starts_name(self.byte(1)) => self.sign('%'),
            c if starts_name(c) => Token::Word(self.word()),
            c if c.is_ascii_digit() => self.number()?,
            b'"' => self.string()?,
            _ => self.sign(first),
        };
        Ok(Some(token))
    }

    fn sign(&mut self, sign: char) -> Token<'a> {
        self.at += sign.len_utf8();
        Token::Sign(sign)
    }

    /// One name, and names behind `::`.
    fn component(&self, mut end: usize) -> usize {
        let bytes = self.text.as_bytes();
        loop {
            while bytes.get(end).is_some_and(|c| continues_name(*c)) {
                end += 1;
            }
            let follows = bytes.get(end..end + 3);
            if !follows.is_some_and(|s| s.starts_with(b"::") && continues_name(s[2])) {
                return end;
            }
            end += 2;
        }
    }

    fn directive(&mut self) -> &'a str {
        let start = self.at;
        self.at = self.component(start + 2);
        &self.text[start..self.at]
    }

    fn word(&mut self) -> &'a str {
        let start = self.at;
        self.at = self.component(start + 1);
        while self.byte(0) == b'.' && continues_name(self.byte(1)) {
            self.at = self.component(self.at + 1);
        }
        &self.text[start..self.at]
    }

    fn string(&mut self) -> Result<Token<'a>, LoadError> {
        let rest = &self.rest()[1..];
        let Some(len) = rest.find('"').filter(|len| !rest[..*len].contains('\n')) else {
            return Err(self.error("the string has no end"));
        };
        self.at += len + 2;
        Ok(Token::Text(&rest[..len]))
    }

    fn number(&mut self) -> Result<Token<'a>, LoadError> {
        let start = self.at;
        let mut is_float = false;
        let hexadecimal = self.byte(0) == b'0' && matches!(self.byte(1), b'x' | b'X');
        loop {
            let c = self.byte(0);
            let is_exponent = !hexadecimal && matches!(c, b'e' | b'E');
            match c {
                b'.' if !hexadecimal => is_float = true,
                b'+' | b'-' if is_float && matches!(self.previous(), b'e' | b'E') => {}
                _ if is_exponent && self.at > start && !self.is_bits(start) => is_float = true,
                _ if continues_name(c) && c != b'$' => {}
                _ => break,
            }
            self.at += 1;
        }
        let text = &self.text[start..self.at];
        let bad = || self.error(format!("'{text}' is not a number"));
        if let Some(digits) = text.strip_prefix("0f").or(text.strip_prefix("0F")) {
            let bits = u32::from_str_radix(digits, 16).map_err(|_| bad())?;
            return Ok(Token::Single(bits));
        }
        if let Some(digits) = text.strip_prefix("0d").or(text.strip_prefix("0D")) {
            let bits = u64::from_str_radix(digits, 16).map_err(|_| bad())?;
            return Ok(Token::Double(bits));
        }
        if is_float {
            let value: f64 = text.parse().map_err(|_| bad())?;
            return Ok(Token::Double(value.to_bits()));
        }
        integer(text).map(Token::Integer).ok_or_else(bad)
    }

    fn previous(&self) -> u8 {
        self.text.as_bytes()[self.at - 1]
    }

    /// Whether the number is `0f…` or `0d…`, whose digits may be an `e`.
    fn is_bits(&self, start: usize) -> bool {
        let bytes = self.text.as_bytes();
        bytes[start] == b'0' && matches!(bytes.get(start + 1), Some(b'f' | b'F' | b'd' | b'D'))
    }
}

fn integer(text: &str) -> Option<Integer> {
    let digits = text.strip_suffix(['u', 'U']).unwrap_or(text);
    let lower = digits.get(..2).map(str::to_ascii_lowercase);
    let bits = match lower.as_deref() {
        Some("0x") => u64::from_str_radix(&digits[2..], 16),
        Some("0b") => u64::from_str_radix(&digits[2..], 2),
        _ if digits.len() > 1 && digits.starts_with('0') => u64::from_str_radix(&digits[1..], 8),
        _ => digits.parse(),
    };
    bits.ok().map(|bits| Integer {
        bits,
        is_unsigned: digits.len() < text.len() || bits > i64::MAX as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<Token<'_>> {
        let placed = tokens(text).unwrap();
        placed.into_iter().map(|placed| placed.token).collect()
    }

    fn int(bits: u64) -> Token<'static> {
        Token::Integer(Integer {
            bits,
            is_unsigned: bits > i64::MAX as u64,
        })
    }

    #[test]
    fn opcodes_keep_their_modifiers_and_directives_are_apart() {
        let found =
            all("ld.global.L1::evict_last.u32 %r<5>, %tid.x; .reg.b32 // x\n$L__1: /* \n */ a");
        let expected = [
            Token::Word("ld.global.L1::evict_last.u32"),
            Token::Word("%r"),
            Token::Sign('<'),
            int(5),
            Token::Sign('>'),
            Token::Sign(','),
            Token::Word("%tid.x"),
            Token::Sign(';'),
            Token::Directive(".reg"),
            Token::Directive(".b32"),
            Token::Word("$L__1"),
            Token::Sign(':'),
            Token::Word("a"),
        ];
        assert_eq!(found, expected);
        assert_eq!(tokens("a\n/*\n*/ b").unwrap()[1].line, 3);
    }

    #[test]
    fn numbers_of_all_forms() {
        let found = all(
            "0 17 017 0x1F 0b101 0xFFFFFFFFFFFFFFFFU 0f3F8e0000 0d3FF0000000000000 1.5 1e3 2.5E-1",
        );
        let expected = [
            int(0),
            int(17),
            int(15),
            int(31),
            int(5),
            int(u64::MAX),
            Token::Single(0x3F8E_0000),
            Token::Double(1f64.to_bits()),
            Token::Double(1.5f64.to_bits()),
            Token::Double(1000f64.to_bits()),
            Token::Double(0.25f64.to_bits()),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_no_token_is_an_error_with_its_line() {
        for (text, line) in [
            ("\n\"a", 2),
            ("/* ", 1),
            ("\n\n0xZ", 3),
            ("99999999999999999999", 1),
        ] {
            assert_eq!(tokens(text).unwrap_err().line(), line, "{text}");
        }
    }
}
