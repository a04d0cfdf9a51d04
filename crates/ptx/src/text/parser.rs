//! Modules, functions and statements.

use super::cursor::Cursor;
use super::declaration::{declarations, signature, starts};
use super::lexer::{Token, tokens};
use super::operand::operand;
use super::syntax::{Function, Instruction, Item, Linkage, Module, Statement};
use crate::error::LoadError;

/// Parses a module.
pub(crate) fn parse(text: &str) -> Result<Module<'_>, LoadError> {
    let mut cursor = Cursor::new(tokens(text)?);
    let mut module = Module::default();
    header(&mut cursor, &mut module)?;
    while cursor.peek().is_some() {
        item(&mut cursor, &mut module)?;
    }
    Ok(module)
}

fn header<'a>(cursor: &mut Cursor<'a>, module: &mut Module<'a>) -> Result<(), LoadError> {
    if !cursor.take_directive(".version") {
        return Err(cursor.unexpected("'.version'"));
    }
    let Some(Token::Double(bits)) = cursor.next() else {
        return Err(cursor.error("expected a version such as 8.0"));
    };
    module.version = (f64::from_bits(bits) * 10.0).round() as u32;
    if !cursor.take_directive(".target") {
        return Err(cursor.unexpected("'.target'"));
    }
    loop {
        module.targets.push(cursor.word("a target")?);
        if !cursor.take_sign(',') {
            break;
        }
    }
    if cursor.take_directive(".address_size") && cursor.number()? != 64 {
        return Err(cursor.error(".address_size 32: not supported"));
    }
    Ok(())
}

fn item<'a>(cursor: &mut Cursor<'a>, module: &mut Module<'a>) -> Result<(), LoadError> {
    let mut linkage = Linkage::Internal;
    loop {
        let Some(Token::Directive(name)) = cursor.peek() else {
            if cursor.take_sign(';') {
                return Ok(());
            }
            return Err(cursor.unexpected("a directive"));
        };
        let line = cursor.line();
        match name {
            ".visible" => linkage = Linkage::Visible,
            ".extern" => linkage = Linkage::Extern,
            ".weak" => linkage = Linkage::Weak,
            ".common" => linkage = Linkage::Common,
            ".entry" | ".func" => {
                cursor.next();
                let found = function(cursor, line, name == ".entry")?;
                module.items.push(Item::Function(found));
                return Ok(());
            }
            ".file" => return file(cursor, module),
            ".section" => return section(cursor),
            ".pragma" => {
                cursor.skip_statement();
                return Ok(());
            }
            ".alias" => {
                cursor.next();
                let name = cursor.word("a name")?;
                cursor.sign(',')?;
                let target = cursor.word("a name")?;
                cursor.sign(';')?;
                module.items.push(Item::Alias(line, name, target));
                return Ok(());
            }
            _ if starts(cursor) => {
                let found = declarations(cursor)?.into_iter();
                module
                    .items
                    .extend(found.map(|own| Item::Variable(linkage, own)));
                return cursor.sign(';');
            }
            _ => return Err(cursor.error(format!("{name}: not supported"))),
        }
        cursor.next();
    }
}

/// `.file 1 "name", 1234, 56`
fn file<'a>(cursor: &mut Cursor<'a>, module: &mut Module<'a>) -> Result<(), LoadError> {
    cursor.next();
    let number = cursor.number()?;
    let Some(Token::Text(name)) = cursor.next() else {
        return Err(cursor.error("expected the name of a file"));
    };
    while cursor.take_sign(',') {
        cursor.next();
    }
    module.files.push((number, name));
    Ok(())
}

/// Debug information: `.section .debug_info { … }`.
fn section(cursor: &mut Cursor<'_>) -> Result<(), LoadError> {
    while !cursor.take_sign('{') {
        if cursor.next().is_none() {
            return Err(cursor.unexpected("'{'"));
        }
    }
    let mut depth = 1;
    while depth > 0 {
        match cursor.next() {
            Some(Token::Sign('{')) => depth += 1,
            Some(Token::Sign('}')) => depth -= 1,
            None => return Err(cursor.unexpected("'}'")),
            _ => {}
        }
    }
    Ok(())
}

fn function<'a>(
    cursor: &mut Cursor<'a>,
    line: u32,
    is_entry: bool,
) -> Result<Function<'a>, LoadError> {
    // Attributes say how the compiler saw the function, which is of no concern here.
    while cursor.take_directive(".attribute") {
        cursor.sign('(')?;
        while !matches!(cursor.next(), None | Some(Token::Sign(')'))) {}
    }
    let (name, signature) = signature(cursor)?;
    let tuning = tuning(cursor)?;
    let body = if cursor.take_sign('{') {
        Some(block(cursor)?)
    } else {
        cursor.sign(';')?;
        None
    };
    Ok(Function {
        line,
        is_entry,
        name,
        signature,
        tuning,
        body,
    })
}

/// Directives between the signature and the body.
fn tuning<'a>(cursor: &mut Cursor<'a>) -> Result<Vec<(&'a str, Vec<u32>)>, LoadError> {
    const KNOWN: [&str; 14] = [
        ".maxnreg",
        ".maxntid",
        ".reqntid",
        ".minnctapersm",
        ".maxnctapersm",
        ".noreturn",
        ".pragma",
        ".explicitcluster",
        ".reqnctapercluster",
        ".maxclusterrank",
        ".blocksareclusters",
        ".abi_preserve",
        ".abi_preserve_control",
        ".unified",
    ];
    let mut found = Vec::new();
    while let Some(Token::Directive(name)) = cursor.peek() {
        if !KNOWN.contains(&name) {
            return Err(cursor.error(format!("{name}: not supported")));
        }
        cursor.next();
        if name == ".pragma" {
            cursor.skip_statement();
            continue;
        }
        let mut numbers = Vec::new();
        while let Some(Token::Integer(_)) = cursor.peek() {
            numbers.push(cursor.number()?);
            if !cursor.take_sign(',') {
                break;
            }
        }
        found.push((name, numbers));
    }
    Ok(found)
}

/// Statements up to the closing brace.
fn block<'a>(cursor: &mut Cursor<'a>) -> Result<Vec<Statement<'a>>, LoadError> {
    let mut found = Vec::new();
    while !cursor.take_sign('}') {
        if cursor.peek().is_none() {
            return Err(cursor.unexpected("'}'"));
        }
        statement(cursor, &mut found)?;
    }
    Ok(found)
}

fn statement<'a>(cursor: &mut Cursor<'a>, found: &mut Vec<Statement<'a>>) -> Result<(), LoadError> {
    let line = cursor.line();
    match (cursor.peek(), cursor.ahead(1)) {
        (Some(Token::Sign(';')), _) => {
            cursor.next();
        }
        (Some(Token::Sign('{')), _) => {
            cursor.next();
            let inner = cursor.nest(block)?;
            found.push(Statement::Block(inner));
        }
        (Some(Token::Word(name)), Some(Token::Sign(':'))) => {
            cursor.next();
            cursor.next();
            found.push(labelled(cursor, line, name)?);
        }
        (Some(Token::Directive(".loc")), _) => {
            cursor.next();
            let (file, line) = (cursor.number()?, cursor.number()?);
            found.push(Statement::Location(file, line));
            location(cursor)?;
        }
        (Some(Token::Directive(".pragma")), _) => cursor.skip_statement(),
        (Some(Token::Directive(_)), _) if starts(cursor) => {
            found.extend(
                declarations(cursor)?
                    .into_iter()
                    .map(Statement::Declaration),
            );
            cursor.sign(';')?;
        }
        (Some(Token::Directive(name)), _) => {
            return Err(cursor.error(format!("{name}: not supported")));
        }
        _ => found.push(Statement::Instruction(instruction(cursor)?)),
    }
    Ok(())
}

/// What follows the line of `.loc`: a column, and where the function was inlined.
fn location(cursor: &mut Cursor<'_>) -> Result<(), LoadError> {
    cursor.number()?;
    while cursor.take_sign(',') {
        match cursor.next() {
            Some(Token::Word("function_name")) => {
                cursor.word("a label")?;
                if cursor.take_sign('+') {
                    cursor.number()?;
                }
            }
            Some(Token::Word("inlined_at")) => {
                for _ in 0..3 {
                    cursor.number()?;
                }
            }
            _ => return Err(cursor.unexpected("function_name or inlined_at")),
        }
    }
    Ok(())
}

fn labelled<'a>(
    cursor: &mut Cursor<'a>,
    line: u32,
    name: &'a str,
) -> Result<Statement<'a>, LoadError> {
    if cursor.take_directive(".branchtargets") || cursor.take_directive(".calltargets") {
        let names = cursor.list(';', |cursor| cursor.word("a label"))?;
        return Ok(Statement::Targets(line, name, names));
    }
    if cursor.take_directive(".callprototype") {
        signature(cursor)?;
        while let Some(Token::Directive(_)) = cursor.peek() {
            cursor.next();
        }
        cursor.skip_statement();
        return Ok(Statement::Prototype(line, name));
    }
    Ok(Statement::Label(line, name))
}

fn instruction<'a>(cursor: &mut Cursor<'a>) -> Result<Instruction<'a>, LoadError> {
    let mut guard = None;
    if cursor.take_sign('@') {
        let is_negated = cursor.take_sign('!');
        guard = Some((cursor.word("a predicate")?, is_negated));
    }
    let line = cursor.line();
    let opcode = cursor.word("an instruction")?;
    let operands = operands(cursor)
        .map_err(|error| LoadError::new(error.line(), format!("{opcode}: {}", error.message())))?;
    Ok(Instruction {
        line,
        guard,
        opcode,
        operands,
    })
}

fn operands<'a>(cursor: &mut Cursor<'a>) -> Result<Vec<super::syntax::Operand<'a>>, LoadError> {
    cursor.list(';', operand)
}
