//! An instruction that is decoded: its modifiers are taken one after the other, its operands by position.

use crate::error::LoadError;
use crate::machine::{Address, Destination, Predicate, Source};
use crate::program::{Bank, Function, Instruction, Operand, Program, Register, Symbol};
use crate::types::{Space, Type};

/// An instruction that is decoded.
pub(super) struct Form<'p> {
    pub(super) program: &'p Program,
    pub(super) function: &'p Function,
    pub(super) instruction: &'p Instruction,
    modifiers: Vec<&'p str>,
    at: usize,
    /// The position of the instruction in the module, which spreads the regions found last.
    hint: u8,
}

/// The result of decoding.
pub(super) type Decoded<T> = Result<T, LoadError>;

impl<'p> Form<'p> {
    pub(super) fn new(
        program: &'p Program,
        function: &'p Function,
        instruction: &'p Instruction,
        hint: u8,
    ) -> Self {
        Self {
            program,
            function,
            instruction,
            modifiers: instruction.opcode.split('.').collect(),
            at: 1,
            hint,
        }
    }

    /// The name before the first dot.
    pub(super) fn root(&self) -> &'p str {
        self.modifiers[0]
    }

    /// All names behind dots.
    pub(super) fn modifiers(&self) -> &[&'p str] {
        &self.modifiers[1..]
    }

    /// An error that names the instruction.
    pub(super) fn error(&self, message: &str) -> LoadError {
        let opcode = &self.instruction.opcode;
        LoadError::new(self.instruction.line, format!("{opcode}: {message}"))
    }

    pub(super) fn unsupported(&self) -> LoadError {
        self.error("not supported")
    }

    // Modifiers

    pub(super) fn peek(&self) -> Option<&'p str> {
        self.modifiers.get(self.at).copied()
    }

    /// Takes the next modifier if it is this one.
    pub(super) fn take(&mut self, name: &str) -> bool {
        let found = self.peek() == Some(name);
        self.at += usize::from(found);
        found
    }

    /// Takes the next modifier if it is one of these, and returns its value.
    pub(super) fn take_one<T: Copy>(&mut self, of: &[(&str, T)]) -> Option<T> {
        let next = self.peek()?;
        let (_, value) = of.iter().find(|(name, _)| *name == next)?;
        self.at += 1;
        Some(*value)
    }

    /// Takes whatever comes next.
    pub(super) fn take_any(&mut self) -> Decoded<&'p str> {
        let next = self
            .peek()
            .ok_or_else(|| self.error("a modifier is missing"))?;
        self.at += 1;
        Ok(next)
    }

    /// Takes a type.
    pub(super) fn take_type(&mut self) -> Decoded<Type> {
        let found = self.peek().and_then(Type::named);
        let found = found.ok_or_else(|| match self.peek() {
            Some(_) => self.unsupported(),
            None => self.error("a type is missing"),
        })?;
        self.at += 1;
        Ok(found)
    }

    /// The last modifier as a type.
    pub(super) fn last_type(&self) -> Option<Type> {
        self.modifiers.last().and_then(|name| Type::named(name))
    }

    /// Fails unless all modifiers were taken, and there are this many operands.
    pub(super) fn finish(&self, operands: usize) -> Decoded<()> {
        if self.at < self.modifiers.len() {
            return Err(self.unsupported());
        }
        let found = self.instruction.operands.len();
        if found != operands {
            return Err(self.error(&format!("has {operands} operands, not {found}")));
        }
        Ok(())
    }

    // Operands

    pub(super) fn len(&self) -> usize {
        self.instruction.operands.len()
    }

    pub(super) fn operand(&self, index: usize) -> Decoded<&'p Operand> {
        let found = self.instruction.operands.get(index);
        found.ok_or_else(|| self.error("an operand is missing"))
    }

    fn wrong(&self, index: usize) -> LoadError {
        self.error(&format!("operand {} has the wrong type", index + 1))
    }

    /// A value of a type.
    pub(super) fn source(&self, index: usize, of: Type) -> Decoded<Source> {
        self.source_of(self.operand(index)?, of)
            .ok_or_else(|| self.wrong(index))
    }

    /// An operand as a value of a type.
    pub(super) fn source_of(&self, operand: &Operand, of: Type) -> Option<Source> {
        match operand {
            Operand::Register(register) if !fits(register.of, of) => None,
            _ => self.wide_source_of(operand, of),
        }
    }

    /// A value of a type, in a register that may be wider.
    pub(super) fn wide_source(&self, index: usize, of: Type) -> Decoded<Source> {
        let operand = self.operand(index)?;
        let is_narrow =
            matches!(operand, Operand::Register(register) if register.of.bits() < of.bits());
        let found = self.wide_source_of(operand, of).filter(|_| !is_narrow);
        found.ok_or_else(|| self.wrong(index))
    }

    pub(super) fn wide_source_of(&self, operand: &Operand, of: Type) -> Option<Source> {
        Some(match operand {
            Operand::Register(register) => source_of_register(*register)?,
            Operand::Special(special) => Source::Special(*special),
            Operand::Integer(value) if of.is_float() && of.bits() != 16 => match of {
                Type::F16x2 | Type::Bf16x2 | Type::F32x2 => Source::Constant(value.bits),
                _ => return None,
            },
            Operand::Integer(value) => Source::Constant(value.bits),
            Operand::Single(bits) if of.bits() == 64 => {
                Source::Constant(f64::from(f32::from_bits(*bits)).to_bits())
            }
            Operand::Single(bits) if of.bits() == 32 => Source::Constant((*bits).into()),
            Operand::Double(bits) if of.bits() == 64 => Source::Constant(*bits),
            Operand::Double(bits) if of.bits() == 32 => {
                Source::Constant((f64::from_bits(*bits) as f32).to_bits().into())
            }
            Operand::Symbol(symbol, addend) if of.bits() >= 32 => Source::Symbol(*symbol, *addend),
            _ => return None,
        })
    }

    /// Where a result of a type goes.
    pub(super) fn destination(&self, index: usize, of: Type) -> Decoded<Destination> {
        match self.operand(index)? {
            Operand::Register(register) if !fits(register.of, of) => Err(self.wrong(index)),
            operand => self
                .destination_of(operand)
                .ok_or_else(|| self.wrong(index)),
        }
    }

    /// Where a result goes, in a register that may be wider.
    pub(super) fn wide_destination(&self, index: usize, of: Type) -> Decoded<Destination> {
        match self.operand(index)? {
            Operand::Register(register) if register.of.bits() < of.bits() => Err(self.wrong(index)),
            operand => self
                .destination_of(operand)
                .ok_or_else(|| self.wrong(index)),
        }
    }

    pub(super) fn destination_of(&self, operand: &Operand) -> Option<Destination> {
        match operand {
            Operand::Register(Register {
                bank: Bank::Word,
                slot,
                ..
            }) => Some(Destination::Word(*slot)),
            Operand::Register(Register {
                bank: Bank::Long,
                slot,
                ..
            }) => Some(Destination::Long(*slot)),
            Operand::Sink => Some(Destination::Nowhere),
            _ => None,
        }
    }

    /// A predicate that is read.
    pub(super) fn predicate(&self, index: usize) -> Decoded<Predicate> {
        self.predicate_of(self.operand(index)?)
            .ok_or_else(|| self.wrong(index))
    }

    pub(super) fn predicate_of(&self, operand: &Operand) -> Option<Predicate> {
        match operand {
            Operand::Register(Register {
                bank: Bank::Predicate,
                slot,
                ..
            }) => {
                let (slot, is_negated) = (*slot, false);
                Some(Predicate::Register { slot, is_negated })
            }
            Operand::Not(Register { slot, .. }) => {
                let (slot, is_negated) = (*slot, true);
                Some(Predicate::Register { slot, is_negated })
            }
            Operand::Integer(value) => Some(Predicate::Constant(value.bits != 0)),
            _ => None,
        }
    }

    /// A predicate that is written; `None` for `_`.
    pub(super) fn predicate_destination(&self, index: usize) -> Decoded<Option<u32>> {
        let operand = self.operand(index)?;
        self.predicate_destination_of(operand)
            .ok_or_else(|| self.wrong(index))
    }

    pub(super) fn predicate_destination_of(&self, operand: &Operand) -> Option<Option<u32>> {
        match operand {
            Operand::Register(Register {
                bank: Bank::Predicate,
                slot,
                ..
            }) => Some(Some(*slot)),
            Operand::Sink => Some(None),
            _ => None,
        }
    }

    /// `d|p`: both; `d` alone: without the second.
    pub(super) fn pair(&self, index: usize) -> Decoded<(&'p Operand, Option<&'p Operand>)> {
        Ok(match self.operand(index)? {
            Operand::Pair(first, second) => (first, Some(second)),
            operand => (operand, None),
        })
    }

    /// The elements of a vector operand; one for a scalar.
    pub(super) fn elements(&self, index: usize) -> Decoded<&'p [Operand]> {
        Ok(match self.operand(index)? {
            Operand::Vector(elements) => elements,
            operand => std::slice::from_ref(operand),
        })
    }

    /// An address in a space. That of a variable decides between the spaces of parameters.
    pub(super) fn address(&self, index: usize, space: Space) -> Decoded<Address> {
        let operand = match self.operand(index)? {
            Operand::Address(inner) => match &inner[..] {
                [one] => one,
                _ => return Err(self.unsupported()),
            },
            operand => operand,
        };
        let mut space = space;
        let (base, offset) = match operand {
            Operand::Register(register) => (source_of_register(*register), 0),
            Operand::Offset(register, offset) => (source_of_register(*register), *offset),
            Operand::Integer(value) => (Some(Source::Constant(value.bits)), 0),
            Operand::Symbol(symbol, offset) => {
                space = match (symbol, space) {
                    (Symbol::Frame(..), _) => Space::Local,
                    (Symbol::Argument(_), _) => Space::Param,
                    (Symbol::Shared(_), Space::Generic) => Space::Shared,
                    _ => space,
                };
                (Some(Source::Symbol(*symbol, *offset)), 0)
            }
            _ => (None, 0),
        };
        Ok(Address {
            space,
            base: base.ok_or_else(|| self.wrong(index))?,
            offset,
            hint: self.hint,
        })
    }
}

fn source_of_register(register: Register) -> Option<Source> {
    match register.bank {
        Bank::Word => Some(Source::Word(register.slot)),
        Bank::Long => Some(Source::Long(register.slot)),
        Bank::Predicate => None,
    }
}

/// Whether a register of one type can be an operand of another.
fn fits(register: Type, of: Type) -> bool {
    register.bits() == of.bits() && register != Type::Pred
}
