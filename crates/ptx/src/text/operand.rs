//! Operands of instructions.

use super::cursor::Cursor;
use super::expression;
use super::lexer::Token;
use super::syntax::Operand;
use crate::error::LoadError;

/// An operand.
pub(super) fn operand<'a>(cursor: &mut Cursor<'a>) -> Result<Operand<'a>, LoadError> {
    let first = single(cursor)?;
    if cursor.take_sign('|') {
        let second = single(cursor)?;
        return Ok(Operand::Pair(Box::new(first), Box::new(second)));
    }
    Ok(first)
}

fn single<'a>(cursor: &mut Cursor<'a>) -> Result<Operand<'a>, LoadError> {
    match cursor.peek() {
        Some(Token::Word("_")) => {
            cursor.next();
            Ok(Operand::Sink)
        }
        Some(Token::Word("WARP_SZ")) => expression::integer(cursor).map(Operand::Integer),
        Some(Token::Word(name)) => {
            cursor.next();
            offset(cursor, name)
        }
        Some(Token::Single(bits)) => {
            cursor.next();
            Ok(Operand::Single(bits))
        }
        Some(Token::Double(bits)) => {
            cursor.next();
            Ok(Operand::Double(bits))
        }
        Some(Token::Sign('-')) => negative(cursor),
        Some(Token::Sign('!')) if matches!(cursor.ahead(1), Some(Token::Word(_))) => {
            cursor.next();
            cursor.word("a predicate").map(Operand::Not)
        }
        Some(Token::Sign('{')) => {
            cursor.next();
            cursor.list('}', operand).map(Operand::Vector)
        }
        Some(Token::Sign('[')) => {
            cursor.next();
            cursor.list(']', operand).map(Operand::Address)
        }
        Some(Token::Sign('(')) if is_parameter_list(cursor) => {
            cursor.next();
            cursor.list(')', operand).map(Operand::List)
        }
        _ => expression::integer(cursor).map(Operand::Integer),
    }
}

/// Whether a parenthesis opens the parameters of a call rather than a constant expression. A constant alone in
/// parentheses can be either: calls accept both.
fn is_parameter_list(cursor: &Cursor<'_>) -> bool {
    let is_name = |token| matches!(token, Some(Token::Word(name)) if name != "WARP_SZ");
    let is_float = |token| matches!(token, Some(Token::Single(_) | Token::Double(_)));
    let first = cursor.ahead(1);
    let ends = matches!(cursor.ahead(2), Some(Token::Sign(',')));
    is_name(first) || is_float(first) || ends || first == Some(Token::Sign(')'))
}

fn negative<'a>(cursor: &mut Cursor<'a>) -> Result<Operand<'a>, LoadError> {
    let operand = match cursor.ahead(1) {
        Some(Token::Single(bits)) => Operand::Single(bits ^ 1 << 31),
        Some(Token::Double(bits)) => Operand::Double(bits ^ 1 << 63),
        _ => return expression::integer(cursor).map(Operand::Integer),
    };
    cursor.next();
    cursor.next();
    Ok(operand)
}

/// What may follow a name: `+4`, `-4`, `+-4`.
pub(super) fn offset<'a>(cursor: &mut Cursor<'a>, name: &'a str) -> Result<Operand<'a>, LoadError> {
    let is_negative = match cursor.peek() {
        Some(Token::Sign('+')) => false,
        Some(Token::Sign('-')) => true,
        _ => return Ok(Operand::Name(name)),
    };
    cursor.next();
    let value = expression::integer(cursor)?.bits as i64;
    let value = if is_negative {
        value.wrapping_neg()
    } else {
        value
    };
    Ok(Operand::Offset(name, value))
}
