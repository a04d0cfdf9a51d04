//! Declarations of PTX: the type, the size and the first value of a parameter or variable.

use super::image::ImageError;
use super::tokens::{Token, Tokens, parse_integer};

/// The most bytes that a variable can have here: more than any device has memory.
const MAX_BYTES: usize = 1 << 46;

/// A parameter or variable.
#[derive(Debug, Default)]
pub(super) struct Declaration<'a> {
    pub(super) name: &'a str,
    pub(super) size: usize,
    pub(super) align: usize,
    pub(super) value: Vec<u8>,
    /// Whether its length is left open: `name[]`.
    pub(super) is_unsized: bool,
    /// Textures, samplers and surfaces, which have no memory.
    pub(super) is_opaque: bool,
    /// Whether it may be a pointer: one integer of 64 bits.
    pub(super) may_be_address: bool,
}

/// The type of an element.
#[derive(Clone, Copy, Debug)]
struct Element {
    size: usize,
    align: usize,
    is_float: bool,
    /// Whether a pointer has this type.
    is_address: bool,
}

/// The bytes of a fundamental type.
fn type_size(name: &str) -> Option<usize> {
    Some(match name {
        ".b8" | ".u8" | ".s8" | ".e4m3" | ".e5m2" => 1,
        ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => 2,
        ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" | ".bf16x2" | ".tf32" => 4,
        ".b64" | ".u64" | ".s64" | ".f64" => 8,
        ".b128" => 16,
        _ => return None,
    })
}

fn vector_len(name: &str) -> Option<usize> {
    match name {
        ".v2" => Some(2),
        ".v4" => Some(4),
        ".v8" => Some(8),
        _ => None,
    }
}

/// What all names of a declaration share: `.align 8 .v2 .f32`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Type {
    element: Element,
    /// Elements of a vector.
    vector: usize,
    align: usize,
    is_opaque: bool,
}

/// Reads the type of a declaration, after its state space.
pub(super) fn type_of(tokens: &mut Tokens<'_>) -> Result<Type, ImageError> {
    let (mut vector, mut element) = (1, None);
    let (mut align, mut is_opaque) = (1, false);
    loop {
        match tokens.peek()? {
            Some(Token::Directive(".align")) => {
                tokens.next()?;
                let number = tokens.number()?;
                if !number.is_power_of_two() || number > 1 << 20 {
                    return Err(tokens.error("Alignment must be a power of two"));
                }
                align = number as usize;
            }
            // `.ptr` is about what a pointer points to, its alignment included.
            Some(Token::Directive(".ptr")) => {
                tokens.next()?;
                skip_pointer_attributes(tokens)?;
            }
            Some(Token::Directive(".attribute")) => {
                tokens.next()?;
                tokens.sign('(')?;
                tokens.skip_brackets('(', ')')?;
            }
            Some(Token::Directive(".texref" | ".samplerref" | ".surfref")) => {
                tokens.next()?;
                is_opaque = true;
                // Passed as a handle.
                element = Some(element_of(8, ""));
            }
            Some(Token::Directive(name)) => {
                tokens.next()?;
                if let Some(len) = vector_len(name) {
                    vector = len;
                } else if let Some(size) = type_size(name) {
                    element = Some(element_of(size, name));
                } else {
                    return Err(tokens.unexpected(Some(Token::Directive(name)), "a type"));
                }
            }
            _ => break,
        }
    }
    let element = element.ok_or_else(|| tokens.error("a type is expected"))?;
    Ok(Type {
        element,
        vector,
        align: align.max(element.align * vector),
        is_opaque,
    })
}

/// Reads one name of a declaration, with its dimensions and, for variables, its value.
pub(super) fn declarator<'a>(
    tokens: &mut Tokens<'a>,
    of: Type,
) -> Result<Declaration<'a>, ImageError> {
    let mut found = Declaration {
        name: tokens.name()?,
        align: of.align,
        is_opaque: of.is_opaque,
        ..Declaration::default()
    };
    let is_array = tokens.peek()? == Some(Token::Sign('['));
    let count = dimensions(tokens, &mut found)?;
    let size = of.element.size * of.vector;
    found.size = size
        .checked_mul(count)
        .filter(|bytes| *bytes <= MAX_BYTES)
        .ok_or_else(|| tokens.error("the variable is too large"))?;
    found.may_be_address = of.element.is_address && found.size == 8 && !is_array;
    if tokens.take_sign('=')? {
        found.value = value(tokens, of.element)?;
        if found.is_unsized {
            found.size = found.value.len();
        }
        if found.value.len() > found.size {
            return Err(tokens.error("Too many initial values"));
        }
    }
    Ok(found)
}

fn element_of(size: usize, name: &str) -> Element {
    Element {
        size,
        align: size,
        is_float: matches!(name, ".f32" | ".f64"),
        is_address: matches!(name, ".b64" | ".u64" | ".s64"),
    }
}

fn skip_pointer_attributes(tokens: &mut Tokens<'_>) -> Result<(), ImageError> {
    loop {
        match tokens.peek()? {
            Some(Token::Directive(".global" | ".const" | ".local" | ".shared" | ".param")) => {
                tokens.next()?;
            }
            Some(Token::Directive(".align")) => {
                tokens.next()?;
                tokens.number()?;
            }
            _ => return Ok(()),
        }
    }
}

/// `[4][2]`: the number of elements.
fn dimensions(tokens: &mut Tokens<'_>, found: &mut Declaration<'_>) -> Result<usize, ImageError> {
    let mut count = 1_usize;
    while tokens.take_sign('[')? {
        if tokens.take_sign(']')? {
            found.is_unsized = true;
            count = 0;
            continue;
        }
        let len = usize::try_from(tokens.number()?).unwrap_or(usize::MAX);
        tokens.sign(']')?;
        count = count.saturating_mul(len);
    }
    Ok(count)
}

/// A first value: a number, or lists of numbers. What is not a number, such as an address, counts as zero.
fn value(tokens: &mut Tokens<'_>, element: Element) -> Result<Vec<u8>, ImageError> {
    let mut bytes = Vec::new();
    let mut depth = 0_u32;
    let mut current: Option<u64> = None;
    let mut negative = false;
    let mut push = |current: &mut Option<u64>| {
        if let Some(number) = current.take() {
            let number = number.to_le_bytes().into_iter();
            bytes.extend(number.chain(std::iter::repeat(0)).take(element.size));
        }
    };
    loop {
        match tokens.peek()? {
            Some(Token::Sign('{')) => depth += 1,
            Some(Token::Sign('}')) if depth > 0 => {
                push(&mut current);
                depth -= 1;
            }
            Some(Token::Sign(',')) if depth > 0 => {
                push(&mut current);
                negative = false;
            }
            Some(Token::Sign(';' | ',')) => break,
            Some(Token::Sign('-')) => negative = true,
            Some(Token::Number(text)) => {
                let number = number(text, element).unwrap_or(0);
                // An expression such as `name+8` is an address.
                current = match (current, negative) {
                    (None, false) => Some(number),
                    (None, true) => Some(negate(number, element)),
                    (Some(_), _) => Some(0),
                };
            }
            Some(Token::Word(_)) => current = Some(0),
            Some(_) => {}
            None => return Err(tokens.unexpected(None, "';'")),
        }
        tokens.next()?;
    }
    push(&mut current);
    if depth > 0 {
        return Err(tokens.error("'}' expected"));
    }
    Ok(bytes)
}

/// The bits of a number: `0f3F800000`, `0d…`, `1.5` or an integer.
fn number(text: &str, element: Element) -> Option<u64> {
    let hex = |prefix: [char; 2], len| {
        let bits = text.strip_prefix('0')?.strip_prefix(prefix)?;
        (bits.len() == len).then(|| u64::from_str_radix(bits, 16).ok())?
    };
    if let Some(bits) = hex(['f', 'F'], 8).or_else(|| hex(['d', 'D'], 16)) {
        return Some(bits);
    }
    if element.is_float {
        let value: f64 = text.parse().ok()?;
        return Some(match element.size {
            4 => (value as f32).to_bits().into(),
            _ => value.to_bits(),
        });
    }
    parse_integer(text)
}

fn negate(bits: u64, element: Element) -> u64 {
    match (element.is_float, element.size) {
        (true, 4) => bits ^ 1 << 31,
        (true, _) => bits ^ 1 << 63,
        _ => bits.wrapping_neg(),
    }
}
