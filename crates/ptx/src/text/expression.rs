//! Constant expressions.

use super::cursor::Cursor;
use super::lexer::{Integer, Token};
use crate::error::LoadError;

/// Binary operators, with how tightly they bind.
const OPERATORS: [(&str, u32); 18] = [
    ("||", 1),
    ("&&", 2),
    ("|", 3),
    ("^", 4),
    ("&", 5),
    ("==", 6),
    ("!=", 6),
    ("<=", 7),
    (">=", 7),
    ("<<", 8),
    (">>", 8),
    ("<", 7),
    (">", 7),
    ("+", 9),
    ("-", 9),
    ("*", 10),
    ("/", 10),
    ("%", 10),
];

/// An integer constant expression.
pub(super) fn integer(cursor: &mut Cursor<'_>) -> Result<Integer, LoadError> {
    cursor.nest(conditional)
}

fn conditional(cursor: &mut Cursor<'_>) -> Result<Integer, LoadError> {
    let condition = binary(cursor, 1)?;
    if !cursor.take_sign('?') {
        return Ok(condition);
    }
    let first = integer(cursor)?;
    cursor.sign(':')?;
    let second = integer(cursor)?;
    Ok(if condition.bits != 0 { first } else { second })
}

fn binary(cursor: &mut Cursor<'_>, least: u32) -> Result<Integer, LoadError> {
    let mut left = unary(cursor)?;
    while let Some((operator, binds)) = operator(cursor) {
        if binds < least {
            break;
        }
        for _ in operator.chars() {
            cursor.next();
        }
        let right = cursor.nest(|cursor| binary(cursor, binds + 1))?;
        left = apply(operator, left, right).ok_or_else(|| cursor.error("division by zero"))?;
    }
    Ok(left)
}

fn operator(cursor: &Cursor<'_>) -> Option<(&'static str, u32)> {
    let matches = |text: &str| {
        let mut signs = text.chars().enumerate();
        signs.all(|(index, sign)| cursor.ahead(index) == Some(Token::Sign(sign)))
    };
    OPERATORS.into_iter().find(|(text, _)| matches(text))
}

fn apply(operator: &str, left: Integer, right: Integer) -> Option<Integer> {
    let is_unsigned = left.is_unsigned || right.is_unsigned;
    let (a, b) = (left.bits, right.bits);
    let (signed_a, signed_b) = (a as i64, b as i64);
    let less = if is_unsigned {
        a < b
    } else {
        signed_a < signed_b
    };
    let truth = |value: bool| Integer {
        bits: value.into(),
        is_unsigned: false,
    };
    let bits = match operator {
        "||" => return Some(truth(a != 0 || b != 0)),
        "&&" => return Some(truth(a != 0 && b != 0)),
        "==" => return Some(truth(a == b)),
        "!=" => return Some(truth(a != b)),
        "<" => return Some(truth(less)),
        ">=" => return Some(truth(!less)),
        ">" => return Some(truth(!less && a != b)),
        "<=" => return Some(truth(less || a == b)),
        "|" => a | b,
        "^" => a ^ b,
        "&" => a & b,
        "<<" => a.checked_shl(b as u32).unwrap_or(0),
        ">>" if left.is_unsigned => a.checked_shr(b as u32).unwrap_or(0),
        ">>" => (signed_a >> b.min(63)) as u64,
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        _ if b == 0 => return None,
        "/" if is_unsigned => a / b,
        "/" => signed_a.wrapping_div(signed_b) as u64,
        _ if is_unsigned => a % b,
        _ => signed_a.wrapping_rem(signed_b) as u64,
    };
    Some(Integer { bits, is_unsigned })
}

fn unary(cursor: &mut Cursor<'_>) -> Result<Integer, LoadError> {
    match cursor.peek() {
        Some(Token::Integer(value)) => {
            cursor.next();
            Ok(value)
        }
        Some(Token::Sign(sign @ ('-' | '+' | '~' | '!'))) => {
            cursor.next();
            let value = cursor.nest(unary)?;
            let bits = match sign {
                '-' => value.bits.wrapping_neg(),
                '~' => !value.bits,
                '!' => u64::from(value.bits == 0),
                _ => value.bits,
            };
            Ok(Integer { bits, ..value })
        }
        Some(Token::Sign('(')) => {
            cursor.next();
            let cast = match cursor.peek() {
                Some(Token::Directive(".u64")) => Some(true),
                Some(Token::Directive(".s64")) => Some(false),
                _ => None,
            };
            if let Some(is_unsigned) = cast {
                cursor.next();
                cursor.sign(')')?;
                let value = cursor.nest(unary)?;
                return Ok(Integer {
                    is_unsigned,
                    ..value
                });
            }
            let value = integer(cursor)?;
            cursor.sign(')')?;
            Ok(value)
        }
        Some(Token::Word("WARP_SZ")) => {
            cursor.next();
            Ok(Integer {
                bits: 32,
                is_unsigned: false,
            })
        }
        _ => Err(cursor.unexpected("a constant")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::lexer::tokens;
    use super::*;

    fn value(text: &str) -> i64 {
        let mut cursor = Cursor::new(tokens(text).unwrap());
        let value = integer(&mut cursor).unwrap();
        assert_eq!(cursor.peek(), None, "{text}");
        value.bits as i64
    }

    #[test]
    fn operators_bind_as_in_c() {
        for (text, expected) in [
            ("1+2*3", 7),
            ("(1+2)*3", 9),
            ("-1 >> 1", -1),
            ("1 << 3 | 1", 9),
            ("10 - 3 - 2", 5),
            ("7 % 4 == 3 ? 10 : 20", 10),
            ("~0 & 0xFF", 255),
            ("!5 || 0", 0),
            ("-7/2", -3),
            ("(.u64)-1 > 0", 1),
            ("-1 < 0", 1),
            ("2 <= 2 && 3 >= 4", 0),
            ("WARP_SZ - 1", 31),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn errors_instead_of_panics() {
        for text in [
            "1/0",
            "1%0",
            "",
            "1+",
            &"(".repeat(100_000),
            &"-".repeat(100_000),
        ] {
            let mut cursor = Cursor::new(tokens(text).unwrap());
            assert!(integer(&mut cursor).is_err());
        }
    }
}
