//! Sizes and initial values of variables.

use super::model::{Relocation, Symbol};
use crate::error::LoadError;
use crate::text::syntax::{Declaration, Initializer, Operand};
use crate::types::Type;

/// The largest variable: more than any device has memory.
const MAX_BYTES: u64 = 1 << 46;

/// The longest initial value with dimensions that are filled up: a short text must not need much memory.
const MAX_INITIAL: u64 = 4 << 20;
/// What all variables of a module may be filled up by.
const MAX_FILLED: u64 = 16 * MAX_INITIAL;

/// The alignment of a declaration.
pub(super) fn align_of(declaration: &Declaration<'_>) -> u32 {
    let natural = declaration.element.bytes() * declaration.vector;
    declaration.align.unwrap_or(1).max(natural)
}

/// The bytes of a declaration whose dimensions are known. Open dimensions count as `open`.
pub(super) fn size_of(declaration: &Declaration<'_>, open: u64) -> Result<u64, LoadError> {
    let element = u64::from(declaration.element.bytes() * declaration.vector);
    let mut dimensions = declaration.dimensions.iter();
    let product = dimensions.try_fold(element, |size, len| size.checked_mul(len.unwrap_or(open)));
    product.filter(|bytes| *bytes <= MAX_BYTES).ok_or_else(|| {
        let message = format!("the variable '{}' is too large", declaration.name);
        LoadError::new(declaration.line, message)
    })
}

/// An initial value.
#[derive(Debug, Default)]
pub(super) struct Data {
    /// Zeros at its end are left out.
    pub(super) bytes: Vec<u8>,
    /// The bytes with those zeros.
    pub(super) len: u64,
    /// How many of the bytes fill up dimensions, so that the text does not have them.
    filled: u64,
    pub(super) relocations: Vec<Relocation>,
}

/// The initial value of a variable. `find` says what a name stands for; `filled` counts what fills up dimensions.
pub(super) fn data(
    declaration: &Declaration<'_>,
    filled: &mut u64,
    find: &impl Fn(&str) -> Option<Symbol>,
) -> Result<Data, LoadError> {
    let mut writer = Writer {
        declaration,
        find,
        data: Data::default(),
    };
    if let Some(initial) = &declaration.initial {
        let dimensions = &declaration.dimensions[..];
        writer.write(initial, dimensions)?;
    }
    let error = writer.error("too long");
    let mut data = writer.data;
    data.len = data.bytes.len() as u64;
    let last = data.bytes.iter().rposition(|byte| *byte != 0);
    let relocated = data.relocations.iter().map(|own| own.at + own.len);
    let end = relocated.fold(last.map_or(0, |last| last + 1), usize::max);
    if end < data.bytes.len() {
        data.bytes.truncate(end);
        data.bytes.shrink_to_fit();
    }
    *filled += data.filled.min(end as u64);
    if *filled > MAX_FILLED {
        return Err(error);
    }
    Ok(data)
}

struct Writer<'a, 'b, F> {
    declaration: &'b Declaration<'a>,
    find: &'b F,
    data: Data,
}

impl<F: Fn(&str) -> Option<Symbol>> Writer<'_, '_, F> {
    fn error(&self, message: &str) -> LoadError {
        let message = format!("the value of '{}': {message}", self.declaration.name);
        LoadError::new(self.declaration.line, message)
    }

    fn write(
        &mut self,
        value: &Initializer<'_>,
        dimensions: &[Option<u64>],
    ) -> Result<(), LoadError> {
        match value {
            Initializer::List(values) => self.write_list(values, dimensions),
            Initializer::Text => Err(self.error("texts are not supported")),
            Initializer::Value(Operand::Name(name)) => self.write_address(name, 0, None),
            Initializer::Value(Operand::Offset(name, addend)) => {
                self.write_address(name, *addend, None)
            }
            Initializer::Generic(name, addend) => self.write_address(name, *addend, None),
            Initializer::Byte(mask, name, addend) => self.write_address(name, *addend, Some(*mask)),
            Initializer::Value(operand) => self.write_number(operand),
        }
    }

    fn write_list(
        &mut self,
        values: &[Initializer<'_>],
        dimensions: &[Option<u64>],
    ) -> Result<(), LoadError> {
        let inner = dimensions.get(1..).unwrap_or(&[]);
        let mut lens = inner.iter();
        let inner_len = lens.try_fold(1u64, |size, len| size.checked_mul(len.unwrap_or(1)));
        let element = self.declaration.element.bytes() as usize;
        for value in values {
            let start = self.data.bytes.len();
            self.write(value, inner)?;
            // An inner list may be shorter than its dimension.
            if let Initializer::List(_) = value {
                let len = inner_len.filter(|len| *len <= MAX_INITIAL);
                let len = len.ok_or_else(|| self.error("too long"))?;
                let end = start + len as usize * element;
                if end as u64 > MAX_INITIAL {
                    return Err(self.error("too long"));
                }
                if self.data.bytes.len() < end {
                    self.data.filled += (end - self.data.bytes.len()) as u64;
                    self.data.bytes.resize(end, 0);
                }
            }
        }
        Ok(())
    }

    fn write_number(&mut self, operand: &Operand<'_>) -> Result<(), LoadError> {
        let of = self.declaration.element;
        let bits = match (operand, of) {
            (Operand::Integer(value), Type::F32) => (value.bits as i64 as f32).to_bits().into(),
            (Operand::Integer(value), Type::F64) => (value.bits as i64 as f64).to_bits(),
            (Operand::Integer(value), _) => value.bits,
            (Operand::Single(bits), Type::F64) => f64::from(f32::from_bits(*bits)).to_bits(),
            (Operand::Single(bits), _) => (*bits).into(),
            (Operand::Double(bits), Type::F32) => (f64::from_bits(*bits) as f32).to_bits().into(),
            (Operand::Double(bits), _) => *bits,
            _ => return Err(self.error("not a constant")),
        };
        let bytes = u128::from(bits).to_le_bytes();
        self.data.bytes.extend(&bytes[..of.bytes() as usize]);
        Ok(())
    }

    /// The address of a symbol, or with a mask such as `0xFF00` one byte of it.
    fn write_address(
        &mut self,
        name: &str,
        addend: i64,
        mask: Option<u64>,
    ) -> Result<(), LoadError> {
        let Some(symbol) = (self.find)(name) else {
            return Err(self.error(&format!("'{name}' is not declared")));
        };
        let len = self.declaration.element.bytes() as usize;
        let at = self.data.bytes.len();
        self.data.bytes.resize(at + len, 0);
        self.data.relocations.push(Relocation {
            at,
            symbol,
            addend,
            len,
            shift: mask.map_or(0, |mask| mask.trailing_zeros().min(63)),
        });
        Ok(())
    }
}
