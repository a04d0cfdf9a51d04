//! PTX: the kernels and variables that a text declares. Bodies are skipped, but for their shared memory.

use std::collections::{BTreeMap, HashSet};

use cuguard_sys::CUresult;

use super::image::{Image, ImageError, Kernel, MAX_SHARED, Parameter, Variable, c_name};
use super::ptx_declarations::{Declaration, declarator, type_of};
use super::tokens::{Token, Tokens};

/// The greatest version that a driver of CUDA 13.0 compiles, as `major * 10 + minor`.
const MAX_VERSION: u32 = 90;
/// The greatest number of bytes of parameters: until PTX 8.1 or for older architectures, and since.
const MAX_PARAMETER_BYTES: [usize; 2] = [4352, 32_764];
/// The version of PTX that introduced an architecture.
const INTRODUCED: [(u32, u32); 8] = [
    (70, 60),
    (72, 61),
    (75, 63),
    (80, 70),
    (86, 71),
    (87, 74),
    (89, 78),
    (90, 78),
];
/// The architecture of the simulated device.
const ARCHITECTURE: u32 = 90;

/// Whether a text is PTX at all, right or wrong.
pub(super) fn is_ptx(text: &str) -> bool {
    let first = Tokens::new(text).next();
    first.is_ok_and(|token| token == Some(Token::Directive(".version")))
}

/// Reads PTX, up to a NUL if there is one.
pub(super) fn read_image(bytes: &[u8]) -> Result<Image, ImageError> {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    if !is_ptx(&text) {
        return Err(ImageError {
            code: CUresult::INVALID_IMAGE,
            log: "error   : the image is neither PTX nor a binary".to_owned(),
        });
    }
    let mut image = read(&text)?;
    image.text = Some(text.into());
    Ok(image)
}

/// Reads PTX.
pub(super) fn read(text: &str) -> Result<Image, ImageError> {
    let mut reader = Reader {
        tokens: Tokens::new(text),
        image: Image {
            architecture: ARCHITECTURE,
            ..Image::default()
        },
        names: HashSet::new(),
        version: 0,
        shared: BTreeMap::new(),
    };
    reader.header()?;
    while let Some(token) = reader.tokens.next()? {
        reader.statement(token)?;
    }
    Ok(reader.image)
}

/// The linkage of a declaration.
#[derive(Clone, Copy, Debug, Default)]
struct Linkage {
    is_extern: bool,
    is_managed: bool,
}

fn duplicate(tokens: &Tokens<'_>, name: &str) -> ImageError {
    tokens.error(&format!("Duplicate definition of variable '{name}'"))
}

struct Reader<'a> {
    tokens: Tokens<'a>,
    image: Image,
    /// Of the kernels and variables in the image.
    names: HashSet<&'a str>,
    /// Of PTX, as `major * 10 + minor`.
    version: u32,
    /// The size and alignment of shared variables outside of kernels.
    shared: BTreeMap<&'a str, (usize, usize)>,
}

impl<'a> Reader<'a> {
    /// `.version`, `.target`.
    fn header(&mut self) -> Result<(), ImageError> {
        let tokens = &mut self.tokens;
        if tokens.next()? != Some(Token::Directive(".version")) {
            return Err(tokens.error("Missing .version directive at start of file"));
        }
        let version = match tokens.next()? {
            Some(Token::Number(text)) => text.split_once('.').and_then(|(major, minor)| {
                let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
                major.checked_mul(10)?.checked_add(minor)
            }),
            _ => None,
        };
        let version = version.ok_or_else(|| tokens.error("Invalid .version"))?;
        if version > MAX_VERSION {
            let mut error = tokens.error("Unsupported .version");
            error.code = cuguard_sys::CUresult::UNSUPPORTED_PTX_VERSION;
            return Err(error);
        }
        self.version = version;
        if tokens.next()? != Some(Token::Directive(".target")) {
            return Err(tokens.error("Missing .target directive"));
        }
        self.target()
    }

    /// `.target sm_90a, debug`.
    fn target(&mut self) -> Result<(), ImageError> {
        let tokens = &mut self.tokens;
        loop {
            let name = tokens.name()?;
            if let Some(name) = name.strip_prefix("sm_") {
                let digits = name.trim_end_matches(['a', 'f']);
                let architecture = digits.parse::<u32>().ok().filter(|number| *number >= 10);
                let known = architecture.filter(|number| {
                    let introduced = INTRODUCED.iter().find(|(own, _)| own == number);
                    *number <= ARCHITECTURE
                        && introduced.is_none_or(|(_, version)| *version <= self.version)
                });
                let architecture = known.ok_or_else(|| tokens.error("Unknown .target"))?;
                self.image.ptx_architecture = architecture;
            }
            if !tokens.take_sign(',')? {
                return Ok(());
            }
        }
    }

    /// One statement outside of functions.
    fn statement(&mut self, first: Token<'a>) -> Result<(), ImageError> {
        let mut linkage = Linkage::default();
        let mut token = Some(first);
        loop {
            match token {
                Some(Token::Directive(".visible" | ".weak" | ".common")) => {}
                Some(Token::Directive(".extern")) => linkage.is_extern = true,
                Some(Token::Directive(".attribute")) => linkage.is_managed |= self.attribute()?,
                Some(Token::Directive(".entry")) => return self.entry(),
                Some(Token::Directive(".func")) => return self.function(),
                Some(Token::Directive(space @ (".global" | ".const" | ".shared" | ".local"))) => {
                    return self.variables(space, linkage);
                }
                Some(Token::Directive(".texref" | ".samplerref" | ".surfref")) => {
                    self.tokens.name()?;
                    return self.tokens.sign(';');
                }
                Some(Token::Directive(".address_size")) => {
                    return match self.tokens.number()? {
                        64 => Ok(()),
                        _ => Err(self.tokens.error("Unsupported .address_size")),
                    };
                }
                Some(Token::Directive(".target")) => return self.target(),
                Some(Token::Directive(".file")) => return self.file(),
                Some(Token::Directive(".section")) => return self.section(),
                Some(Token::Directive(".pragma" | ".alias")) => return self.skip_statement(),
                Some(Token::Sign(';')) => return Ok(()),
                other => return Err(self.tokens.unexpected(other, "a directive")),
            }
            token = self.tokens.next()?;
        }
    }

    /// `(.managed)`: whether it is that.
    fn attribute(&mut self) -> Result<bool, ImageError> {
        self.tokens.sign('(')?;
        let managed = self.tokens.peek()? == Some(Token::Directive(".managed"));
        self.tokens.skip_brackets('(', ')')?;
        Ok(managed)
    }

    /// `.file 1 "name", 0, 0`
    fn file(&mut self) -> Result<(), ImageError> {
        self.tokens.number()?;
        match self.tokens.next()? {
            Some(Token::Text) => {}
            other => return Err(self.tokens.unexpected(other, "a file name")),
        }
        while self.tokens.take_sign(',')? {
            self.tokens.number()?;
        }
        Ok(())
    }

    /// `.section .debug_info { … }`
    fn section(&mut self) -> Result<(), ImageError> {
        while !self.tokens.take_sign('{')? {
            if self.tokens.next()?.is_none() {
                return Err(self.tokens.unexpected(None, "'{'"));
            }
        }
        self.tokens.skip_brackets('{', '}')
    }

    fn skip_statement(&mut self) -> Result<(), ImageError> {
        while !self.tokens.take_sign(';')? {
            if self.tokens.next()?.is_none() {
                return Err(self.tokens.unexpected(None, "';'"));
            }
        }
        Ok(())
    }

    /// Variables of one declaration.
    fn variables(&mut self, space: &str, mut linkage: Linkage) -> Result<(), ImageError> {
        // After the state space too: `.global .attribute(.managed) .u32 x`.
        if self.tokens.peek()? == Some(Token::Directive(".attribute")) {
            self.tokens.next()?;
            linkage.is_managed |= self.attribute()?;
        }
        let of = type_of(&mut self.tokens)?;
        loop {
            let found = declarator(&mut self.tokens, of)?;
            match space {
                ".shared" if !linkage.is_extern => {
                    self.shared.insert(found.name, (found.size, found.align));
                }
                ".global" | ".const" if !linkage.is_extern && !found.is_opaque => {
                    self.add_variable(found, space == ".const", linkage)?;
                }
                _ => {}
            }
            if !self.tokens.take_sign(',')? {
                return self.tokens.sign(';');
            }
        }
    }

    fn add_variable(
        &mut self,
        found: Declaration<'a>,
        is_const: bool,
        linkage: Linkage,
    ) -> Result<(), ImageError> {
        self.check_unique(found.name)?;
        if found.size == 0 {
            return Err(self.tokens.error("a variable needs at least one element"));
        }
        self.image.variables.push(Variable {
            name: found.name.to_owned(),
            size: found.size,
            align: found.align.max(1),
            value: found.value,
            is_const,
            is_managed: linkage.is_managed,
        });
        Ok(())
    }

    /// Fails if the name of a kernel or variable is already defined.
    fn check_unique(&mut self, name: &'a str) -> Result<(), ImageError> {
        match self.names.insert(name) {
            true => Ok(()),
            false => Err(duplicate(&self.tokens, name)),
        }
    }

    /// A device function, which the host cannot call.
    fn function(&mut self) -> Result<(), ImageError> {
        loop {
            match self.tokens.next()? {
                Some(Token::Sign(';')) => return Ok(()),
                Some(Token::Sign('{')) => return self.tokens.skip_brackets('{', '}'),
                Some(_) => {}
                found @ None => return Err(self.tokens.unexpected(found, "'{'")),
            }
        }
    }

    fn entry(&mut self) -> Result<(), ImageError> {
        let name = self.tokens.name()?;
        let mut kernel = Kernel {
            name: c_name(name),
            ..Kernel::default()
        };
        if self.tokens.take_sign('(')? {
            self.parameters(&mut kernel)?;
        }
        loop {
            match self.tokens.next()? {
                Some(Token::Sign('{')) => break,
                // A declaration; the definition follows.
                Some(Token::Sign(';')) => return Ok(()),
                Some(Token::Directive(".maxntid")) => {
                    let dims = self.dimensions()?;
                    let threads = dims.iter().try_fold(1_u32, |all, n| all.checked_mul(*n));
                    kernel.max_threads = Some(threads.unwrap_or(u32::MAX));
                }
                Some(Token::Directive(".reqntid")) => kernel.block = Some(self.dimensions()?),
                Some(Token::Directive(".pragma")) => self.skip_statement()?,
                Some(Token::Directive(_) | Token::Text | Token::Number(_) | Token::Sign(','))
                | Some(Token::Sign('(' | ')')) => {}
                other => return Err(self.tokens.unexpected(other, "'{'")),
            }
        }
        self.check_unique(name)?;
        kernel.shared = self.body()?;
        self.image.kernels.push(kernel);
        Ok(())
    }

    /// One to three numbers.
    fn dimensions(&mut self) -> Result<[u32; 3], ImageError> {
        let mut dims = [1; 3];
        for (index, dim) in dims.iter_mut().enumerate() {
            if index > 0 && !self.tokens.take_sign(',')? {
                break;
            }
            let number = self.tokens.number()?;
            *dim = u32::try_from(number).unwrap_or(u32::MAX);
            if *dim == 0 {
                return Err(self.tokens.error("Number of threads must be positive"));
            }
        }
        Ok(dims)
    }

    fn parameters(&mut self, kernel: &mut Kernel) -> Result<(), ImageError> {
        if self.tokens.take_sign(')')? {
            return Ok(());
        }
        let is_new = self.version >= 81 && self.image.ptx_architecture >= 70;
        let [old_most, new_most] = MAX_PARAMETER_BYTES;
        let most = if is_new { new_most } else { old_most };
        let mut names = HashSet::new();
        let mut end = 0_usize;
        loop {
            match self.tokens.next()? {
                Some(Token::Directive(".param")) => {}
                other => return Err(self.tokens.unexpected(other, ".param")),
            }
            let of = type_of(&mut self.tokens)?;
            let found = declarator(&mut self.tokens, of)?;
            if !names.insert(found.name) {
                return Err(duplicate(&self.tokens, found.name));
            }
            let offset = end.next_multiple_of(found.align.max(1));
            end = offset + found.size;
            // A parameter may have no bytes, so that their number is limited too.
            if end > most || names.len() > most {
                return Err(self.tokens.error("Formal parameter space overflowed"));
            }
            kernel.parameters.push(Parameter {
                offset,
                size: found.size,
                may_be_address: found.may_be_address,
            });
            match self.tokens.next()? {
                Some(Token::Sign(',')) => {}
                Some(Token::Sign(')')) => return Ok(()),
                other => return Err(self.tokens.unexpected(other, "',' or ')'")),
            }
        }
    }

    /// Skips a body; returns the bytes of the shared variables that are declared or used in it.
    fn body(&mut self) -> Result<usize, ImageError> {
        let mut depth = 1_u32;
        let mut shared = 0_usize;
        let mut used = HashSet::new();
        let mut add = |size: usize, align: usize| {
            shared = shared
                .next_multiple_of(align.max(1))
                .saturating_add(size)
                .min(MAX_SHARED);
        };
        let mut last = None;
        while depth > 0 {
            let token = self.tokens.next()?;
            match token {
                Some(Token::Sign('{')) => depth += 1,
                Some(Token::Sign('}')) => {
                    depth -= 1;
                    if depth == 0 && matches!(last, Some(Token::Word(_) | Token::Number(_))) {
                        return Err(self.tokens.unexpected(token, "';'"));
                    }
                }
                // A declaration, not a part of an instruction such as `ld.shared`.
                Some(Token::Directive(".shared"))
                    if !matches!(last, Some(Token::Word(_) | Token::Directive(_))) =>
                {
                    let of = type_of(&mut self.tokens)?;
                    loop {
                        let found = declarator(&mut self.tokens, of)?;
                        add(found.size, found.align);
                        if !self.tokens.take_sign(',')? {
                            break;
                        }
                    }
                }
                Some(Token::Word(name)) => {
                    if let Some((&name, &(size, align))) = self.shared.get_key_value(name)
                        && used.insert(name)
                    {
                        add(size, align);
                    }
                }
                Some(_) => {}
                None => return Err(self.tokens.unexpected(None, "'}'")),
            }
            last = token;
        }
        Ok(shared)
    }
}

#[cfg(test)]
#[path = "ptx_tests.rs"]
mod tests;
