//! A position in the tokens of a text.

use super::lexer::{Placed, Token};
use crate::error::LoadError;

/// A position in the tokens of a text.
pub(crate) struct Cursor<'a> {
    tokens: Vec<Placed<'a>>,
    at: usize,
    /// Brackets that are open.
    depth: u32,
}

/// Brackets nest at most this deep: the parser is recursive.
const MAX_DEPTH: u32 = 200;

impl<'a> Cursor<'a> {
    pub(crate) fn new(tokens: Vec<Placed<'a>>) -> Self {
        Self {
            tokens,
            at: 0,
            depth: 0,
        }
    }

    pub(crate) fn peek(&self) -> Option<Token<'a>> {
        self.ahead(0)
    }

    /// A token further on.
    pub(crate) fn ahead(&self, count: usize) -> Option<Token<'a>> {
        self.tokens.get(self.at + count).map(|placed| placed.token)
    }

    /// The line of the next token; at the end, that of the last one.
    pub(crate) fn line(&self) -> u32 {
        let placed = self.tokens.get(self.at).or(self.tokens.last());
        placed.map_or(1, |placed| placed.line)
    }

    pub(crate) fn next(&mut self) -> Option<Token<'a>> {
        let token = self.peek();
        self.at += 1;
        token
    }

    pub(crate) fn error(&self, message: impl Into<String>) -> LoadError {
        LoadError::new(self.line(), message)
    }

    /// The next token is not `expected`.
    pub(crate) fn unexpected(&self, expected: &str) -> LoadError {
        let found = match self.peek() {
            None => "the end of the text".to_owned(),
            Some(Token::Directive(name) | Token::Word(name)) => format!("'{name}'"),
            Some(Token::Sign(sign)) => format!("'{sign}'"),
            Some(Token::Text(text)) => format!("\"{text}\""),
            Some(Token::Integer(value)) => format!("{}", value.bits as i64),
            Some(Token::Single(_) | Token::Double(_)) => "a floating-point number".to_owned(),
        };
        self.error(format!("expected {expected}, found {found}"))
    }

    pub(crate) fn take_sign(&mut self, sign: char) -> bool {
        let found = self.peek() == Some(Token::Sign(sign));
        self.at += usize::from(found);
        found
    }

    pub(crate) fn sign(&mut self, sign: char) -> Result<(), LoadError> {
        if self.take_sign(sign) {
            return Ok(());
        }
        Err(self.unexpected(&format!("'{sign}'")))
    }

    pub(crate) fn word(&mut self, what: &str) -> Result<&'a str, LoadError> {
        match self.peek() {
            Some(Token::Word(name)) => {
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.unexpected(what)),
        }
    }

    /// Takes a directive if it is this one.
    pub(crate) fn take_directive(&mut self, name: &str) -> bool {
        let found = self.peek() == Some(Token::Directive(name));
        self.at += usize::from(found);
        found
    }

    /// An integer literal that fits 32 bits.
    pub(crate) fn number(&mut self) -> Result<u32, LoadError> {
        if let Some(Token::Integer(value)) = self.peek()
            && let Ok(number) = u32::try_from(value.bits)
        {
            self.at += 1;
            return Ok(number);
        }
        Err(self.unexpected("a number"))
    }

    /// Things separated by commas up to `end`, which is taken too.
    pub(crate) fn list<T>(
        &mut self,
        end: char,
        mut item: impl FnMut(&mut Self) -> Result<T, LoadError>,
    ) -> Result<Vec<T>, LoadError> {
        let mut found = Vec::new();
        if self.take_sign(end) {
            return Ok(found);
        }
        self.nest(|cursor| {
            loop {
                found.push(item(cursor)?);
                if !cursor.take_sign(',') {
                    return cursor.sign(end);
                }
            }
        })?;
        Ok(found)
    }

    /// Fails where brackets nest too deep.
    pub(crate) fn nest<T>(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<T, LoadError>,
    ) -> Result<T, LoadError> {
        if self.depth == MAX_DEPTH {
            return Err(self.error("brackets nest too deep"));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// Skips to behind the next semicolon.
    pub(crate) fn skip_statement(&mut self) {
        while !matches!(self.next(), None | Some(Token::Sign(';'))) {}
    }
}
