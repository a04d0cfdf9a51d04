//! The names of frames, resolved when a report is made, once for each distinct frame.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::c_void;
use std::rc::Rc;

use cuguard_stack::{Module, is_unloadable, locate};

use crate::demangle::demangle;
use crate::foreign::{self, is_foreign};
use crate::module_symbols::ModuleSymbols;
use crate::symbol_file::{Name, hexadecimal};

/// A function at an address. Inlined functions have the same address.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Symbol {
    pub(crate) function: Option<String>,
    /// The file, as in the debug information.
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
}

/// The module that an address is in: all that is known of it in a stripped program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModuleOffset {
    /// The path of the program or library.
    pub(crate) path: Rc<str>,
    /// The offset of the call, as `addr2line` expects it: the byte before the return address.
    pub(crate) offset: usize,
    /// In hexadecimal; empty where the module has none.
    pub(crate) build_id: Rc<str>,
    /// Tells libraries apart that had one path, one after the other. 0 for a module that is never unloaded.
    pub(crate) library: usize,
}

impl ModuleOffset {
    /// The file name of the module.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// A frame of a stack trace.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The return address. Of a library that was unloaded: where it was loaded first.
    pub(crate) address: usize,
    pub(crate) symbol: Rc<Symbol>,
    pub(crate) module: Option<ModuleOffset>,
    /// Whether it is inlined into the function that follows.
    pub(crate) inlined: bool,
    /// Whether it is of these crates.
    pub(crate) own: bool,
    /// Whether it is the program's own, as far as can be told. The text report shows these only.
    pub(crate) in_app: bool,
}

impl Frame {
    /// The name of the function, or without one the module and the offset, or the address.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        match (&self.symbol.function, &self.module) {
            (Some(name), _) => name.into(),
            (None, Some(module)) => format!("{}+{:#x}", module.name(), module.offset).into(),
            (None, None) => format!("{:#x}", self.address).into(),
        }
    }
}

/// What is known of one frame.
#[derive(Clone, Debug)]
struct Known {
    address: usize,
    symbols: Rc<[Rc<Symbol>]>,
    module: Option<ModuleOffset>,
}

/// A module with its path and build id as text.
type NamedModule = (Module, Rc<str>, Rc<str>);

/// The frames of one report.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    known: HashMap<usize, Known>,
    /// Read when the first address is resolved.
    modules: Option<Vec<NamedModule>>,
    files: ModuleSymbols,
    /// Those that can be unloaded, in the order in which their first frames are resolved.
    libraries: Vec<&'static Module>,
}

impl Symbols {
    /// The frames of a stack, innermost first. Unless `all` are wanted, they end where the runtime calls
    /// the program: names of libc and std are the most expensive to resolve, and are not shown.
    pub(crate) fn frames(&mut self, stack: &[usize], all: bool) -> Vec<Frame> {
        let mut frames = Vec::with_capacity(stack.len());
        for frame in stack {
            let Known {
                address,
                symbols,
                module,
            } = self.at(*frame);
            for (index, symbol) in symbols.iter().enumerate() {
                if !all && is_start(symbol) {
                    return frames;
                }
                frames.push(Frame {
                    address,
                    symbol: symbol.clone(),
                    module: module.clone(),
                    inlined: index + 1 < symbols.len(),
                    own: false,
                    in_app: false,
                });
            }
        }
        frames
    }

    /// Resolves frames of many stacks, module by module: the debug information of only a few modules is kept in memory,
    /// and reading that of a large library takes a second.
    pub(crate) fn resolve_all(&mut self, frames: impl Iterator<Item = usize>) {
        let mut frames: Vec<usize> = frames.collect();
        frames.sort_unstable();
        frames.dedup();
        for frame in frames {
            self.at(frame);
        }
    }

    fn at(&mut self, frame: usize) -> Known {
        if let Some(known) = self.known.get(&frame) {
            return known.clone();
        }
        let known = match (is_foreign(frame), locate(frame)) {
            (true, _) => Known {
                address: frame,
                symbols: resolve_foreign(frame),
                module: None,
            },
            (false, Some((module, offset))) => self.in_library(module, offset),
            (false, None) => self.at_address(frame),
        };
        self.known.insert(frame, known.clone());
        known
    }

    /// In a library that can be unloaded.
    fn in_library(&mut self, module: &'static Module, offset: usize) -> Known {
        // The byte before the return address is of the call.
        let call = offset.wrapping_sub(1);
        let mut libraries = self.libraries.iter();
        let known = libraries.position(|own| std::ptr::eq(*own, module));
        let library = known.unwrap_or_else(|| {
            self.libraries.push(module);
            self.libraries.len() - 1
        });
        Known {
            address: module.address(offset),
            symbols: symbols(self.files.names(module, call)),
            module: Some(ModuleOffset {
                path: module.path.to_string_lossy().into(),
                offset: call,
                build_id: hexadecimal(&module.build_id).into(),
                library: library + 1,
            }),
        }
    }

    fn at_address(&mut self, address: usize) -> Known {
        let unknown = || Known {
            address,
            symbols: symbols(Vec::new()),
            module: None,
        };
        let modules = self.modules.get_or_insert_with(|| {
            let modules = cuguard_stack::modules().into_iter();
            let text = |module: Module| {
                let path = module.path.to_string_lossy().into();
                let build_id = hexadecimal(&module.build_id).into();
                (module, path, build_id)
            };
            modules.map(text).collect()
        });
        let Some(call) = address.checked_sub(1) else {
            return unknown();
        };
        let module = modules.iter().find(|(m, ..)| m.contains(call));
        if module.is_some_and(|(module, ..)| is_unloadable(module)) {
            // Code that was generated at run time, where that library is now: frames of libraries have numbers.
            return unknown();
        }
        Known {
            address,
            symbols: symbols(resolve(address)),
            module: module.map(|(module, path, build_id)| ModuleOffset {
                path: path.clone(),
                offset: module.offset(call),
                build_id: build_id.clone(),
                library: 0,
            }),
        }
    }
}

/// Whether this is the function through which the runtime calls the program.
pub(crate) fn is_start(symbol: &Symbol) -> bool {
    let name = symbol.function.as_deref().unwrap_or_default();
    name.contains("__rust_begin_short_backtrace")
}

/// A frame of an interpreter.
fn resolve_foreign(number: usize) -> Rc<[Rc<Symbol>]> {
    let symbol = foreign::resolve(number).map_or_else(Symbol::default, |frame| Symbol {
        function: Some(frame.function),
        file: Some(frame.file),
        line: Some(frame.line).filter(|line| *line != 0),
        column: None,
    });
    [Rc::new(symbol)].into()
}

/// At least one symbol: an address without a name is a frame too.
fn symbols(names: Vec<Name>) -> Rc<[Rc<Symbol>]> {
    if names.is_empty() {
        return [Rc::default()].into();
    }
    let known = |number: u32| Some(number).filter(|number| *number != 0);
    let symbol = |name: Name| {
        Rc::new(Symbol {
            function: name.function,
            file: name.file,
            line: known(name.line),
            column: known(name.column),
        })
    };
    names.into_iter().map(symbol).collect()
}

/// The names at an address of code that is never unloaded.
fn resolve(address: usize) -> Vec<Name> {
    let mut names = Vec::new();
    // `resolve` expects a return address, and looks up the byte before.
    backtrace::resolve(address as *mut c_void, |symbol| {
        names.push(Name {
            function: symbol
                .name()
                .map(|name| demangle(&String::from_utf8_lossy(name.as_bytes()))),
            file: symbol
                .filename()
                .map(|file| file.to_string_lossy().into_owned()),
            line: symbol.lineno().unwrap_or_default(),
            column: symbol.colno().unwrap_or_default(),
        });
    });
    names
}

#[cfg(test)]
mod tests {
    use super::{Symbol, Symbols};

    #[test]
    fn a_function_is_found_by_a_return_address_within_it() {
        let mut stack = Vec::new();
        backtrace::trace(|frame| {
            stack.push(frame.ip() as usize);
            true
        });
        let mut symbols = Symbols::default();
        let frames = symbols.frames(&stack, false);
        let here = "a_function_is_found_by_a_return_address_within_it";
        let is_here = |symbol: &Symbol| {
            symbol
                .function
                .as_deref()
                .is_some_and(|name| name.ends_with(here))
                && symbol
                    .file
                    .as_deref()
                    .is_none_or(|file| file.ends_with("symbols.rs"))
        };
        let found = frames.iter().find(|frame| is_here(&frame.symbol));
        let found = found.unwrap_or_else(|| panic!("{frames:#?}"));
        if let Some(module) = &found.module {
            let program = std::env::current_exe().unwrap();
            assert_eq!(&*module.path, program.to_str().unwrap());
            assert!(module.offset < found.address && program.ends_with(module.name()));
        }
        assert!(symbols.known.len() <= stack.len());
        let again = symbols.frames(&stack, false);
        assert_eq!(again.len(), frames.len());
        // What called the program is not resolved unless all frames are wanted.
        let known = symbols.known.len();
        assert!(symbols.frames(&stack, true).len() > frames.len());
        assert!(symbols.known.len() > known);
    }

    #[test]
    fn an_address_without_a_name_is_a_frame() {
        let frames = Symbols::default().frames(&[1], false);
        assert_eq!(frames.len(), 1);
        assert_eq!((frames[0].address, &frames[0].symbol.function), (1, &None));
        assert_eq!(frames[0].module, None);
    }
}
