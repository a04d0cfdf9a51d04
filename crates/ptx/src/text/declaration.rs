//! Declarations of variables, parameters and registers.

use super::cursor::Cursor;
use super::lexer::Token;
use super::operand::{offset, operand};
use super::syntax::{Declaration, Initializer, Operand, Signature};
use super::{expression, lexer};
use crate::error::LoadError;
use crate::types::{Space, Type};

/// The state space that a directive names.
fn space(name: &str) -> Option<Space> {
    Some(match name {
        ".reg" => Space::Register,
        ".local" => Space::Local,
        ".shared" | ".shared::cta" => Space::Shared,
        ".global" => Space::Global,
        ".const" => Space::Const,
        ".param" => Space::Param,
        _ => return None,
    })
}

/// Whether a declaration starts here.
pub(super) fn starts(cursor: &Cursor<'_>) -> bool {
    matches!(cursor.peek(), Some(Token::Directive(name)) if space(name).is_some())
}

/// Declarations that share a type: `.reg .b32 a, b<4>;`, without the semicolon.
pub(super) fn declarations<'a>(cursor: &mut Cursor<'a>) -> Result<Vec<Declaration<'a>>, LoadError> {
    let of = specifier(cursor)?;
    let mut found = Vec::new();
    loop {
        let mut one = of.clone();
        declarator(cursor, &mut one)?;
        found.push(one);
        if !cursor.take_sign(',') {
            return Ok(found);
        }
    }
}

/// One parameter: `.param .u64 .ptr .global .align 4 name[8]`.
pub(super) fn parameter<'a>(cursor: &mut Cursor<'a>) -> Result<Declaration<'a>, LoadError> {
    let mut one = specifier(cursor)?;
    declarator(cursor, &mut one)?;
    Ok(one)
}

/// `(returns) name (params)`, where both lists may be missing. The name is missing in a prototype: `_`.
pub(super) fn signature<'a>(
    cursor: &mut Cursor<'a>,
) -> Result<(&'a str, Signature<'a>), LoadError> {
    let mut found = Signature::default();
    if cursor.take_sign('(') {
        found.returns = cursor.list(')', parameter)?;
    }
    let name = cursor.word("the name of a function")?;
    if cursor.take_sign('(') {
        found.params = cursor.list(')', parameter)?;
    }
    Ok((name, found))
}

/// The space, the alignment and the type.
fn specifier<'a>(cursor: &mut Cursor<'a>) -> Result<Declaration<'a>, LoadError> {
    let line = cursor.line();
    let declared = match cursor.peek() {
        Some(Token::Directive(name)) => space(name),
        _ => None,
    };
    let space = declared.ok_or_else(|| cursor.unexpected("a state space"))?;
    cursor.next();
    let mut found = Declaration {
        line,
        space,
        element: Type::B8,
        vector: 1,
        align: None,
        name: "",
        registers: None,
        dimensions: Vec::new(),
        initial: None,
        is_managed: false,
    };
    let mut element = None;
    while let Some(Token::Directive(name)) = cursor.peek() {
        match name {
            ".align" => {
                cursor.next();
                let align = cursor.number()?;
                if !align.is_power_of_two() || align > 1 << 20 {
                    return Err(cursor.error("an alignment must be a power of two"));
                }
                found.align = Some(align);
                continue;
            }
            ".ptr" => {
                cursor.next();
                pointer_attributes(cursor)?;
                continue;
            }
            ".attribute" => {
                cursor.next();
                cursor.sign('(')?;
                let names = cursor.list(')', attribute)?;
                found.is_managed |= names.contains(&".managed");
                continue;
            }
            ".v2" => found.vector = 2,
            ".v4" => found.vector = 4,
            ".v8" => found.vector = 8,
            _ => {
                let Some(named) = Type::named(&name[1..]) else {
                    return Err(cursor.error(format!("{name}: not supported")));
                };
                element = Some(named);
            }
        }
        cursor.next();
    }
    found.element = element.ok_or_else(|| cursor.unexpected("a type"))?;
    Ok(found)
}

/// What a pointer parameter points to: `.global .align 4`.
fn pointer_attributes(cursor: &mut Cursor<'_>) -> Result<(), LoadError> {
    let is_space = |token| {
        matches!(
            token,
            Some(Token::Directive(
                ".const" | ".global" | ".local" | ".shared" | ".generic"
            ))
        )
    };
    if is_space(cursor.peek()) {
        cursor.next();
    }
    if cursor.take_directive(".align") {
        cursor.number()?;
    }
    Ok(())
}

/// `.managed`, `.unified(1, 2)`
fn attribute<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, LoadError> {
    let Some(Token::Directive(name)) = cursor.next() else {
        return Err(cursor.unexpected("an attribute"));
    };
    if cursor.take_sign('(') {
        cursor.list(')', expression::integer)?;
    }
    Ok(name)
}

fn declarator<'a>(cursor: &mut Cursor<'a>, found: &mut Declaration<'a>) -> Result<(), LoadError> {
    found.line = cursor.line();
    found.name = cursor.word("a name")?;
    if cursor.take_sign('<') {
        found.registers = Some(cursor.number()?);
        cursor.sign('>')?;
    }
    while cursor.take_sign('[') {
        let mut len = None;
        if !cursor.take_sign(']') {
            len = Some(expression::integer(cursor)?.bits);
            cursor.sign(']')?;
        }
        found.dimensions.push(len);
    }
    if cursor.take_sign('=') {
        found.initial = Some(initializer(cursor)?);
    }
    Ok(())
}

fn initializer<'a>(cursor: &mut Cursor<'a>) -> Result<Initializer<'a>, LoadError> {
    match (cursor.peek(), cursor.ahead(1)) {
        (Some(Token::Sign('{')), _) => {
            cursor.next();
            cursor.list('}', initializer).map(Initializer::List)
        }
        (Some(Token::Text(_)), _) => {
            cursor.next();
            Ok(Initializer::Text)
        }
        (Some(Token::Word("generic")), Some(Token::Sign('('))) => {
            cursor.next();
            named(cursor).map(|(name, offset)| Initializer::Generic(name, offset))
        }
        (Some(Token::Integer(mask)), Some(Token::Sign('('))) => {
            cursor.next();
            let lexer::Integer { bits, .. } = mask;
            named(cursor).map(|(name, offset)| Initializer::Byte(bits, name, offset))
        }
        _ => operand(cursor).map(Initializer::Value),
    }
}

/// `(name)`, `(name+4)`, `(name)+4`
fn named<'a>(cursor: &mut Cursor<'a>) -> Result<(&'a str, i64), LoadError> {
    let split = |operand| match operand {
        Operand::Offset(name, offset) => (name, offset),
        Operand::Name(name) => (name, 0),
        _ => ("", 0),
    };
    cursor.sign('(')?;
    let mut name = cursor.word("a variable")?;
    let mut inner = 0;
    if name == "generic" && cursor.take_sign('(') {
        name = cursor.word("a variable")?;
        cursor.sign(')')?;
    }
    inner += split(offset(cursor, name)?).1;
    cursor.sign(')')?;
    let outer = split(offset(cursor, name)?).1;
    Ok((name, inner.wrapping_add(outer)))
}
