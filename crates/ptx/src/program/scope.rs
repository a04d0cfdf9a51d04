//! The names in a function: scopes of braces, registers, the frame.

use std::collections::HashMap;

use super::model::{Bank, Operand, Register, Symbol};
use crate::types::Type;

/// What a name in a function stands for.
#[derive(Clone, Debug)]
pub(super) enum Local {
    Register(Register),
    /// `.reg .v4 .f32 v`: its elements.
    Vector(Vec<Register>),
    Symbol(Symbol),
    Label(u32),
    Targets(usize),
    Prototype,
}

/// Registers declared as `%r<10>`. They get slots when they are first used.
#[derive(Debug)]
struct Range {
    of: Type,
    count: u32,
    slots: HashMap<u32, u32>,
}

#[derive(Debug, Default)]
struct Scope<'a> {
    names: HashMap<&'a str, Local>,
    ranges: HashMap<&'a str, Range>,
    /// Where the frame ended when the scope began.
    frame: u32,
}

/// The names that are visible at a point of a function.
#[derive(Debug)]
pub(super) struct Scopes<'a> {
    open: Vec<Scope<'a>>,
    /// The number of registers in each bank.
    pub(super) registers: [u32; 3],
    /// The bytes of the frame in use.
    frame: u32,
    /// The most that were in use.
    pub(super) frame_size: u32,
    /// The largest alignment in it.
    pub(super) frame_align: u32,
}

/// The bank of registers of a type.
pub(super) fn bank_of(of: Type) -> Bank {
    match of {
        Type::Pred => Bank::Predicate,
        _ if of.bits() > 32 => Bank::Long,
        _ => Bank::Word,
    }
}

impl<'a> Scopes<'a> {
    pub(super) fn new() -> Self {
        Self {
            open: vec![Scope::default()],
            registers: [0; 3],
            frame: 0,
            frame_size: 0,
            frame_align: 4,
        }
    }

    pub(super) fn enter(&mut self) {
        let frame = self.frame;
        self.open.push(Scope {
            frame,
            ..Scope::default()
        });
    }

    /// Leaves the innermost scope: others may use its part of the frame.
    pub(super) fn leave(&mut self) {
        if let Some(scope) = self.open.pop() {
            self.frame = scope.frame;
        }
    }

    /// A new register.
    pub(super) fn register(&mut self, of: Type) -> Register {
        new_register(&mut self.registers, of)
    }

    /// Names a thing in the innermost scope; false if the name is taken there.
    pub(super) fn declare(&mut self, name: &'a str, local: Local) -> bool {
        let scope = self.innermost();
        !scope.ranges.contains_key(name) && scope.names.insert(name, local).is_none()
    }

    /// Declares registers `%r0`, `%r1` and so on.
    pub(super) fn declare_range(&mut self, prefix: &'a str, of: Type, count: u32) -> bool {
        let range = Range {
            of,
            count,
            slots: HashMap::new(),
        };
        self.innermost().ranges.insert(prefix, range).is_none()
    }

    fn innermost(&mut self) -> &mut Scope<'a> {
        if self.open.is_empty() {
            self.open.push(Scope::default());
        }
        let last = self.open.len() - 1;
        &mut self.open[last]
    }

    /// Reserves bytes of the frame; `None` if it gets too large.
    pub(super) fn reserve(&mut self, size: u64, align: u32) -> Option<u32> {
        const MAX_FRAME: u64 = 512 << 10;
        let start = u64::from(self.frame).next_multiple_of(u64::from(align.max(4)));
        let end = start.checked_add(size)?.next_multiple_of(4);
        if end > MAX_FRAME {
            return None;
        }
        self.frame = end as u32;
        self.frame_align = self.frame_align.max(align);
        self.frame_size = self.frame_size.max(self.frame);
        Some(start as u32)
    }

    /// What a name stands for in the innermost scope that has it.
    pub(super) fn find(&mut self, name: &str) -> Option<Local> {
        let digits = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (prefix, number) = name.split_at(digits);
        // `%r01` is not `%r1`.
        let is_plain = number == "0" || !number.starts_with('0');
        let number: Option<u32> = number.parse().ok().filter(|_| is_plain);
        for scope in self.open.iter_mut().rev() {
            if let Some(local) = scope.names.get(name) {
                return Some(local.clone());
            }
            let Some((range, number)) = scope.ranges.get_mut(prefix).zip(number) else {
                continue;
            };
            if number < range.count {
                let registers = &mut self.registers;
                let new = || new_register(registers, range.of).slot;
                let slot = *range.slots.entry(number).or_insert_with(new);
                let (of, bank) = (range.of, bank_of(range.of));
                return Some(Local::Register(Register { bank, slot, of }));
            }
        }
        None
    }
}

fn new_register(registers: &mut [u32; 3], of: Type) -> Register {
    let bank = bank_of(of);
    let slot = registers[bank as usize];
    registers[bank as usize] += if of.bits() > 64 { 2 } else { 1 };
    Register { bank, slot, of }
}

impl Local {
    /// The operand that the name is, with `offset` behind it; `None` if there cannot be an offset.
    pub(super) fn operand(self, offset: i64) -> Option<Operand> {
        Some(match self {
            Self::Register(register) if offset != 0 => Operand::Offset(register, offset),
            Self::Register(register) => Operand::Register(register),
            Self::Symbol(symbol) => Operand::Symbol(symbol, offset),
            _ if offset != 0 => return None,
            Self::Vector(elements) => {
                Operand::Vector(elements.into_iter().map(Operand::Register).collect())
            }
            Self::Label(at) => Operand::Label(at),
            Self::Targets(index) => Operand::Targets(index),
            Self::Prototype => Operand::Prototype,
        })
    }
}
