//! Operands of decoded instructions.

use super::grid::function_address;
use super::lanes::{LANES, Lanes, lanes};
use super::value::{Row, Value};
use super::warp::Warp;
use crate::program::{Special, Symbol};

/// Where an instruction reads a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    Word(u32),
    Long(u32),
    Constant(u64),
    /// The address of a symbol in its space, and what is added to it.
    Symbol(Symbol, i64),
    Special(Special),
}

/// Where an instruction writes a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Destination {
    Word(u32),
    Long(u32),
    /// `_`
    Nowhere,
}

/// Where an instruction reads a predicate.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Predicate {
    Register { slot: u32, is_negated: bool },
    Constant(bool),
}

/// The lanes of an operand: those of a register, or of what is none.
#[derive(Debug)]
pub(crate) enum RowOf<'r, R> {
    Register(&'r Lanes<R>),
    Value(Lanes<R>),
}

impl<R> std::ops::Deref for RowOf<'_, R> {
    type Target = Lanes<R>;

    #[inline(always)]
    fn deref(&self) -> &Lanes<R> {
        match self {
            Self::Register(row) => row,
            Self::Value(row) => row,
        }
    }
}

impl Warp<'_, '_> {
    /// The lanes of an operand as they are stored.
    #[inline(always)]
    pub(crate) fn row<R: Row>(&self, source: Source) -> RowOf<'_, R> {
        match source {
            Source::Word(slot) if !R::IS_LONG => RowOf::Register(R::get(self.registers, slot)),
            Source::Long(slot) if R::IS_LONG => RowOf::Register(R::get(self.registers, slot)),
            Source::Constant(bits) => RowOf::Value([R::from_long(bits); LANES]),
            _ => RowOf::Value(self.convert(source)),
        }
    }

    #[inline(never)]
    fn convert<R: Row>(&self, source: Source) -> Lanes<R> {
        match source {
            Source::Word(slot) => self
                .registers
                .words(slot)
                .map(|word| R::from_long(word.into())),
            Source::Long(slot) => self.registers.longs(slot).map(R::from_long),
            Source::Constant(bits) => [R::from_long(bits); LANES],
            Source::Symbol(symbol, addend) => [R::from_long(self.symbol(symbol, addend)); LANES],
            Source::Special(special) => self.special(special).map(R::from_long),
        }
    }

    /// The values of an operand.
    #[inline(always)]
    pub(crate) fn read<T: Value>(&self, source: Source) -> Lanes<T> {
        let row = self.row(source);
        lanes(|lane| T::from_row(row[lane]))
    }

    /// The address of a symbol in its space.
    pub(crate) fn symbol(&self, symbol: Symbol, addend: i64) -> u64 {
        let address = match symbol {
            Symbol::Variable(index) => self.grid.variables[index],
            Symbol::Shared(index) => self.grid.shared[index].unwrap_or(0).into(),
            Symbol::Frame(offset, _) => (self.registers.base().local + offset).into(),
            Symbol::Argument(offset) => offset.into(),
            Symbol::Function(index) => function_address(index),
        };
        address.wrapping_add_signed(addend)
    }

    /// Writes the values of the active lanes.
    #[inline(always)]
    pub(crate) fn write<T: Value>(&mut self, to: Destination, values: Lanes<T>) {
        let row = lanes(|lane| values[lane].to_row());
        match to {
            Destination::Word(slot) if !T::Row::IS_LONG => {
                T::Row::set(self.registers, slot, self.mask, &row);
            }
            Destination::Long(slot) if T::Row::IS_LONG => {
                T::Row::set(self.registers, slot, self.mask, &row);
            }
            _ => self.write_converted(to, &values),
        }
    }

    #[inline(never)]
    fn write_converted<T: Value>(&mut self, to: Destination, values: &Lanes<T>) {
        match to {
            Destination::Word(slot) => {
                let words = values.map(T::to_word);
                self.registers.set_words(slot, self.mask, &words);
            }
            Destination::Long(slot) => {
                let longs = values.map(T::to_long);
                self.registers.set_longs(slot, self.mask, &longs);
            }
            Destination::Nowhere => {}
        }
    }

    /// The bits of a predicate.
    #[inline(always)]
    pub(crate) fn predicate(&self, predicate: Predicate) -> u32 {
        match predicate {
            Predicate::Register { slot, is_negated } => {
                let bits = self.registers.predicate(slot);
                if is_negated { !bits } else { bits }
            }
            Predicate::Constant(value) => u32::from(value).wrapping_neg(),
        }
    }

    /// Writes the active lanes' bits of a predicate.
    #[inline(always)]
    pub(crate) fn set_predicate(&mut self, slot: Option<u32>, bits: u32) {
        if let Some(slot) = slot {
            self.registers.set_predicate(slot, self.mask, bits);
        }
    }
}
