//! Resolves the names in the body of a function.

use std::collections::HashMap;
use std::sync::Arc;

use super::data::{align_of, size_of};
use super::model::{Bank, Function, Guard, Instruction, Operand, Parameter, Place, Shared, Symbol};
use super::scope::{Local, Scopes};
use super::special::Special;
use crate::error::LoadError;
use crate::text::syntax::{self, Declaration, Signature, Statement};
use crate::types::Space;

/// The state while a body is resolved.
pub(super) struct Body<'r, 'a> {
    pub(super) symbols: &'r HashMap<&'a str, Symbol>,
    pub(super) shared: &'r mut Vec<Shared>,
    pub(super) scopes: Scopes<'a>,
    pub(super) function: &'r mut Function,
    pub(super) code: Vec<Instruction>,
    pub(super) location: Option<(u32, u32)>,
}

/// A name that is declared twice.
pub(super) fn duplicate(line: u32, name: &str) -> LoadError {
    LoadError::new(line, format!("'{name}' is declared twice"))
}

/// A variable in shared memory.
pub(super) fn shared_of(
    declaration: &Declaration<'_>,
    is_extern: bool,
) -> Result<Shared, LoadError> {
    let size = size_of(declaration, 0)?;
    let is_open = declaration.dimensions.first() == Some(&None);
    Ok(Shared {
        size: u32::try_from(size).map_err(|_| {
            let message = format!("the variable '{}' is too large", declaration.name);
            LoadError::new(declaration.line, message)
        })?,
        align: align_of(declaration),
        is_dynamic: is_open || is_extern,
    })
}

impl<'a> Body<'_, 'a> {
    /// The parameters of the function.
    pub(super) fn signature(&mut self, own: &Signature<'a>) -> Result<(), LoadError> {
        let mut arguments = 0;
        self.function.returns = self.parameters(&own.returns, &mut arguments)?;
        self.function.params = self.parameters(&own.params, &mut arguments)?;
        Ok(())
    }

    fn parameters(
        &mut self,
        declared: &[Declaration<'a>],
        arguments: &mut u64,
    ) -> Result<Vec<Parameter>, LoadError> {
        let mut found = Vec::new();
        for own in declared {
            let (size, align) = (size_of(own, 0)?, align_of(own));
            let too_large = || LoadError::new(own.line, format!("'{}' is too large", own.name));
            let (place, local) = if own.space == Space::Register {
                let is_one = own.vector == 1 && own.dimensions.is_empty();
                if !is_one || own.registers.is_some() {
                    let message = format!("the parameter '{}' is not one register", own.name);
                    return Err(LoadError::new(own.line, message));
                }
                let register = self.scopes.register(own.element);
                (Place::Register(register), Local::Register(register))
            } else if self.function.is_entry {
                let offset = arguments.next_multiple_of(align.into());
                *arguments = offset + size;
                if *arguments > 32 << 10 {
                    return Err(too_large());
                }
                let offset = offset as u32;
                (
                    Place::Frame(offset),
                    Local::Symbol(Symbol::Argument(offset)),
                )
            } else {
                let offset = self.scopes.reserve(size, align).ok_or_else(too_large)?;
                let symbol = Symbol::Frame(offset, size as u32);
                (Place::Frame(offset), Local::Symbol(symbol))
            };
            if !self.scopes.declare(own.name, local) {
                return Err(duplicate(own.line, own.name));
            }
            found.push(Parameter {
                size: size as u32,
                place,
            });
        }
        Ok(found)
    }

    /// Statements of one scope. Its labels are visible from its start.
    pub(super) fn statements(&mut self, statements: &[Statement<'a>]) -> Result<(), LoadError> {
        let mut at = self.code.len() as u32;
        for statement in statements {
            match statement {
                Statement::Label(line, name) => {
                    if !self.scopes.declare(name, Local::Label(at)) {
                        return Err(duplicate(*line, name));
                    }
                }
                Statement::Targets(line, name, _) => {
                    let index = self.function.branch_targets.len();
                    self.function.branch_targets.push(Arc::default());
                    if !self.scopes.declare(name, Local::Targets(index)) {
                        return Err(duplicate(*line, name));
                    }
                }
                Statement::Prototype(line, name) => {
                    if !self.scopes.declare(name, Local::Prototype) {
                        return Err(duplicate(*line, name));
                    }
                }
                _ => at += count(statement),
            }
        }
        for statement in statements {
            self.statement(statement)?;
        }
        Ok(())
    }

    fn statement(&mut self, statement: &Statement<'a>) -> Result<(), LoadError> {
        match statement {
            Statement::Declaration(own) => self.declaration(own),
            Statement::Block(inner) => {
                self.scopes.enter();
                self.statements(inner)?;
                self.scopes.leave();
                Ok(())
            }
            Statement::Instruction(own) => self.instruction(own),
            Statement::Location(file, line) => {
                self.location = Some((*file, *line));
                Ok(())
            }
            Statement::Targets(line, name, labels) => self.targets(*line, name, labels),
            Statement::Label(..) | Statement::Prototype(..) => Ok(()),
        }
    }

    /// The labels of `.branchtargets`. Those of `.calltargets` are functions, and are only a hint.
    fn targets(&mut self, line: u32, name: &str, labels: &[&'a str]) -> Result<(), LoadError> {
        let Some(Local::Targets(index)) = self.scopes.find(name) else {
            return Ok(());
        };
        let mut found = Vec::new();
        for label in labels {
            match self.scopes.find(label) {
                Some(Local::Label(at)) => found.push(at),
                _ => match self.symbols.get(label) {
                    Some(Symbol::Function(index)) => {
                        self.function.uses_functions.insert(*index);
                    }
                    _ => return Err(LoadError::new(line, format!("'{label}' is not declared"))),
                },
            }
        }
        self.function.branch_targets[index] = found.into();
        Ok(())
    }

    fn declaration(&mut self, own: &Declaration<'a>) -> Result<(), LoadError> {
        let is_new = match own.space {
            Space::Register => match own.registers {
                Some(count) => self.scopes.declare_range(own.name, own.element, count),
                None if own.vector > 1 => return self.vector(own),
                None => {
                    let register = self.scopes.register(own.element);
                    self.scopes.declare(own.name, Local::Register(register))
                }
            },
            Space::Local | Space::Param => {
                let size = size_of(own, 0)?;
                let offset = self.scopes.reserve(size, align_of(own));
                let offset = offset.ok_or_else(|| {
                    LoadError::new(own.line, format!("'{}' is too large", own.name))
                })?;
                let symbol = Symbol::Frame(offset, size as u32);
                self.scopes.declare(own.name, Local::Symbol(symbol))
            }
            Space::Shared => {
                self.shared.push(shared_of(own, false)?);
                let symbol = Symbol::Shared(self.shared.len() - 1);
                self.scopes.declare(own.name, Local::Symbol(symbol))
            }
            _ => {
                let message = format!("'{}' cannot be declared in a function", own.name);
                return Err(LoadError::new(own.line, message));
            }
        };
        if is_new {
            return Ok(());
        }
        Err(duplicate(own.line, own.name))
    }

    fn vector(&mut self, own: &Declaration<'a>) -> Result<(), LoadError> {
        let elements = (0..own.vector).map(|_| self.scopes.register(own.element));
        let elements = elements.collect();
        if self.scopes.declare(own.name, Local::Vector(elements)) {
            return Ok(());
        }
        Err(duplicate(own.line, own.name))
    }

    fn instruction(&mut self, own: &syntax::Instruction<'a>) -> Result<(), LoadError> {
        let mut guard = None;
        if let Some((name, is_negated)) = own.guard {
            let Some(Local::Register(register)) = self.scopes.find(name) else {
                return Err(LoadError::new(
                    own.line,
                    format!("'{name}' is not declared"),
                ));
            };
            if register.bank != Bank::Predicate {
                let message = format!("'{name}' is not a predicate");
                return Err(LoadError::new(own.line, message));
            }
            let slot = register.slot;
            guard = Some(Guard { slot, is_negated });
        }
        let operands = own.operands.iter();
        let operands = operands.map(|operand| self.operand(own, operand));
        let operands = operands.collect::<Result<Vec<_>, _>>()?;
        let is_call = own.opcode.split('.').next() == Some("call");
        self.function.calls_pointers |= is_call
            && operands
                .iter()
                .any(|own| matches!(own, Operand::Register(_)));
        self.code.push(Instruction {
            line: own.line,
            location: self.location,
            guard,
            opcode: own.opcode.into(),
            operands,
        });
        Ok(())
    }

    fn operand(
        &mut self,
        of: &syntax::Instruction<'a>,
        operand: &syntax::Operand<'a>,
    ) -> Result<Operand, LoadError> {
        let mut all = |operands: &[syntax::Operand<'a>]| {
            let found = operands.iter().map(|operand| self.operand(of, operand));
            found.collect::<Result<Vec<_>, _>>()
        };
        Ok(match operand {
            syntax::Operand::Name(name) => self.name(of, name, 0)?,
            syntax::Operand::Offset(name, offset) => self.name(of, name, *offset)?,
            syntax::Operand::Integer(value) => Operand::Integer(*value),
            syntax::Operand::Single(bits) => Operand::Single(*bits),
            syntax::Operand::Double(bits) => Operand::Double(*bits),
            syntax::Operand::Vector(elements) => Operand::Vector(all(elements)?),
            syntax::Operand::List(elements) => Operand::List(all(elements)?),
            syntax::Operand::Address(elements) => Operand::Address(all(elements)?),
            syntax::Operand::Pair(first, second) => {
                let first = self.operand(of, first)?;
                Operand::Pair(Box::new(first), Box::new(self.operand(of, second)?))
            }
            syntax::Operand::Not(name) => match self.name(of, name, 0)? {
                Operand::Register(register) if register.bank == Bank::Predicate => {
                    Operand::Not(register)
                }
                _ => {
                    let message = format!("'{name}' is not a predicate");
                    return Err(LoadError::new(of.line, message));
                }
            },
            syntax::Operand::Sink => Operand::Sink,
        })
    }

    fn name(
        &mut self,
        of: &syntax::Instruction<'a>,
        name: &'a str,
        offset: i64,
    ) -> Result<Operand, LoadError> {
        let error = |message: String| LoadError::new(of.line, message);
        let mut local = self.scopes.find(name);
        if local.is_none() {
            local = self.symbols.get(name).copied().map(Local::Symbol);
        }
        if local.is_none() {
            local = self.element(name);
        }
        if let Some(local) = local {
            match local {
                Local::Symbol(Symbol::Shared(index)) => {
                    self.function.uses_shared.insert(index);
                }
                Local::Symbol(Symbol::Function(index)) => {
                    self.function.uses_functions.insert(index);
                }
                _ => {}
            }
            let operand = local.operand(offset);
            return operand.ok_or_else(|| error(format!("'{name}' cannot have an offset")));
        }
        if let Some(special) = Special::named(name).filter(|_| offset == 0) {
            return Ok(Operand::Special(special));
        }
        Err(error(format!("{}: '{name}' is not declared", of.opcode)))
    }

    /// `v.x` of a vector register.
    fn element(&mut self, name: &str) -> Option<Local> {
        let (vector, component) = name.rsplit_once('.')?;
        let index = ["x", "y", "z", "w", "r", "g", "b", "a"];
        let index = index.iter().position(|own| *own == component)? % 4;
        let Some(Local::Vector(elements)) = self.scopes.find(vector) else {
            return None;
        };
        elements.get(index).copied().map(Local::Register)
    }
}

/// The number of instructions in a statement.
fn count(statement: &Statement<'_>) -> u32 {
    match statement {
        Statement::Instruction(_) => 1,
        Statement::Block(inner) => inner.iter().map(count).sum(),
        _ => 0,
    }
}
