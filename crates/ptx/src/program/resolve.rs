//! Resolves the names of a syntax tree.

use std::collections::{BTreeSet, HashMap};

use super::body::{Body, duplicate, shared_of};
use super::data::{align_of, data, size_of};
use super::model::{Function, Instruction, Program, Symbol, Tuning, Variable};
use super::scope::Scopes;
use crate::error::LoadError;
use crate::text::syntax::{self, Declaration, Item, Linkage};
use crate::types::Space;

/// Resolves the names of a module.
pub(crate) fn resolve(module: &syntax::Module<'_>) -> Result<Program, LoadError> {
    let mut resolver = Resolver {
        program: Program::default(),
        symbols: HashMap::new(),
        filled: 0,
    };
    let files = module.files.iter();
    resolver.program.files = files
        .map(|(number, name)| (*number, (*name).to_owned()))
        .collect();
    // Names first: bodies and values may name what is declared behind them.
    for item in &module.items {
        match item {
            Item::Variable(linkage, declaration) => resolver.variable(*linkage, declaration)?,
            Item::Function(function) => resolver.signature(function)?,
            Item::Alias(line, name, target) => {
                let symbol = resolver.symbols.get(target).copied();
                let missing = || LoadError::new(*line, format!("'{target}' is not declared"));
                resolver.symbols.insert(name, symbol.ok_or_else(missing)?);
            }
        }
    }
    for item in &module.items {
        match item {
            Item::Variable(linkage, declaration) => resolver.value(*linkage, declaration)?,
            Item::Function(function) => resolver.body(function)?,
            Item::Alias(..) => {}
        }
    }
    let mut variables = resolver.program.variables.iter();
    if let Some(own) = variables.find(|own| own.linkage == Linkage::Extern) {
        return Err(LoadError::new(
            own.line,
            format!("'{}' is not defined", own.name),
        ));
    }
    Ok(resolver.program)
}

struct Resolver<'a> {
    program: Program,
    symbols: HashMap<&'a str, Symbol>,
    /// Bytes of initial values that the text does not have.
    filled: u64,
}

impl<'a> Resolver<'a> {
    /// Names a variable.
    fn variable(&mut self, linkage: Linkage, own: &Declaration<'a>) -> Result<(), LoadError> {
        let is_extern = linkage == Linkage::Extern;
        let symbol = match own.space {
            Space::Shared => {
                self.program.shared.push(shared_of(own, is_extern)?);
                Symbol::Shared(self.program.shared.len() - 1)
            }
            Space::Global | Space::Const => {
                // A declaration before the definition shares its place.
                if let Some(Symbol::Variable(index)) = self.symbols.get(own.name) {
                    let earlier = &self.program.variables[*index];
                    let one_is_extern = is_extern || earlier.linkage == Linkage::Extern;
                    return if one_is_extern {
                        Ok(())
                    } else {
                        Err(duplicate(own.line, own.name))
                    };
                }
                self.program.variables.push(Variable {
                    line: own.line,
                    name: own.name.to_owned(),
                    space: own.space,
                    linkage,
                    size: 0,
                    align: align_of(own).into(),
                    initial: Vec::new(),
                    relocations: Vec::new(),
                    is_managed: own.is_managed,
                });
                Symbol::Variable(self.program.variables.len() - 1)
            }
            _ => {
                let message = format!("'{}' must be in a function", own.name);
                return Err(LoadError::new(own.line, message));
            }
        };
        if self.symbols.insert(own.name, symbol).is_some() {
            return Err(duplicate(own.line, own.name));
        }
        Ok(())
    }

    /// The size and the initial value of a variable.
    fn value(&mut self, linkage: Linkage, own: &Declaration<'a>) -> Result<(), LoadError> {
        let Some(Symbol::Variable(index)) = self.symbols.get(own.name).copied() else {
            return Ok(());
        };
        let find = |name: &str| self.symbols.get(name).copied();
        let found = data(own, &mut self.filled, &find)?;
        let fixed = size_of(own, 1)?;
        let is_open = own.dimensions.first() == Some(&None);
        let size = if is_open { found.len } else { fixed };
        if found.len > size {
            let message = format!("the value of '{}' is too long", own.name);
            return Err(LoadError::new(own.line, message));
        }
        for relocation in &found.relocations {
            if let Symbol::Function(function) = relocation.symbol {
                self.program.in_variables.insert(function);
            }
        }
        let variable = &mut self.program.variables[index];
        if linkage == Linkage::Extern && variable.linkage != Linkage::Extern {
            return Ok(());
        }
        variable.linkage = linkage;
        variable.size = size;
        variable.initial = found.bytes;
        variable.relocations = found.relocations;
        Ok(())
    }

    /// Names a function.
    fn signature(&mut self, own: &syntax::Function<'a>) -> Result<(), LoadError> {
        let found = Function {
            name: own.name.to_owned(),
            is_entry: own.is_entry,
            params: Vec::new(),
            returns: Vec::new(),
            tuning: tuning(&own.tuning),
            body: None,
            registers: [0; 3],
            frame: 0,
            frame_align: 1,
            branch_targets: Vec::new(),
            uses_shared: BTreeSet::new(),
            calls_pointers: false,
            uses_functions: BTreeSet::new(),
        };
        match self.symbols.get(own.name) {
            None => {
                let index = self.program.functions.len();
                self.symbols.insert(own.name, Symbol::Function(index));
                self.program.functions.push(found);
            }
            Some(Symbol::Function(index)) => {
                let earlier = &mut self.program.functions[*index];
                if own.body.is_some() {
                    *earlier = found;
                }
            }
            Some(_) => return Err(duplicate(own.line, own.name)),
        }
        Ok(())
    }

    fn body(&mut self, own: &syntax::Function<'a>) -> Result<(), LoadError> {
        let Some(Symbol::Function(index)) = self.symbols.get(own.name).copied() else {
            return Ok(());
        };
        if self.program.functions[index].body.is_some() {
            return match own.body {
                Some(_) => Err(duplicate(own.line, own.name)),
                None => Ok(()),
            };
        }
        let mut body = Body {
            symbols: &self.symbols,
            shared: &mut self.program.shared,
            scopes: Scopes::new(),
            function: &mut self.program.functions[index],
            code: Vec::new(),
            location: None,
        };
        body.signature(&own.signature)?;
        if let Some(statements) = &own.body {
            body.statements(statements)?;
        }
        // A function that ends without `ret` returns.
        body.code.push(Instruction {
            line: own.line,
            location: None,
            guard: None,
            opcode: "ret".into(),
            operands: Vec::new(),
        });
        let (code, scopes) = (body.code, body.scopes);
        let function = &mut self.program.functions[index];
        function.registers = scopes.registers;
        function.frame = scopes.frame_size.next_multiple_of(64);
        function.frame_align = scopes.frame_align;
        function.body = own.body.as_ref().map(|_| code);
        Ok(())
    }
}

fn tuning(directives: &[(&str, Vec<u32>)]) -> Tuning {
    let mut found = Tuning::default();
    for (name, numbers) in directives {
        let extent = || {
            let at = |index| numbers.get(index).copied().unwrap_or(1);
            Some([at(0), at(1), at(2)])
        };
        match *name {
            ".maxntid" => found.max_threads = extent(),
            ".reqntid" => found.required_threads = extent(),
            ".reqnctapercluster" => found.required_cluster = extent(),
            ".explicitcluster" => found.explicit_cluster = true,
            _ => {}
        }
    }
    found
}
