//! The names behind addresses: looked up when a report is made, each distinct address once.

use std::collections::HashMap;
use std::ffi::c_void;
use std::rc::Rc;

use cuguard_stack::Module;

use super::frames;

/// One function at one address. Where functions were inlined there are several, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Symbol {
    pub(super) function: Option<String>,
    /// The file, as the compiler wrote it down.
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
    pub(super) column: Option<u32>,
}

/// Where an address lies in a file: all that is known of it in a stripped program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// The program or library, with its path.
    pub(super) module: Rc<str>,
    /// The call, as `addr2line` wants it: the byte before the return address.
    pub(super) offset: usize,
    /// In hexadecimal; empty where the module has none.
    pub(super) build_id: Rc<str>,
}

impl Spot {
    /// The file name of the module.
    pub(super) fn name(&self) -> &str {
        self.module.rsplit('/').next().unwrap_or_default()
    }
}

/// A function on a stack.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) address: usize,
    pub(super) symbol: Rc<Symbol>,
    pub(super) spot: Option<Spot>,
    /// Whether the compiler put it into the function that follows.
    pub(super) inlined: bool,
    /// Whether it is of this crate.
    pub(super) own: bool,
    /// Whether a person wrote it, as far as one can tell; the others are cut away in text.
    pub(super) in_app: bool,
}

/// What is known of one address.
type Known = (Rc<[Rc<Symbol>]>, Option<Spot>);

/// A module, with its path and its build id as text.
type Named = (Module, Rc<str>, Rc<str>);

/// The addresses of one report.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    known: HashMap<usize, Known>,
    /// Read when the first address is looked up.
    modules: Option<Vec<Named>>,
}

impl Symbols {
    /// The functions on a stack, innermost first. Unless `all` are wanted, it ends where the runtime
    /// called the program: the names of libc's and std's functions are the most expensive to look up,
    /// and nobody looks at them.
    pub(super) fn frames(&mut self, stack: &[usize], all: bool) -> Vec<Frame> {
        let mut frames = Vec::with_capacity(stack.len());
        for address in stack {
            let (symbols, spot) = self.at(*address);
            for (index, symbol) in symbols.iter().enumerate() {
                if !all && frames::is_start(symbol) {
                    return frames;
                }
                frames.push(Frame {
                    address: *address,
                    symbol: symbol.clone(),
                    spot: spot.clone(),
                    inlined: index + 1 < symbols.len(),
                    own: false,
                    in_app: false,
                });
            }
        }
        frames
    }

    fn at(&mut self, address: usize) -> Known {
        if let Some(known) = self.known.get(&address) {
            return known.clone();
        }
        let known = (look_up(address), self.spot(address));
        self.known.insert(address, known.clone());
        known
    }

    fn spot(&mut self, address: usize) -> Option<Spot> {
        let modules = self.modules.get_or_insert_with(|| {
            let modules = cuguard_stack::modules().into_iter();
            let text = |module: Module| {
                let path = module.path.to_string_lossy().into();
                let build_id = module.build_id.iter().map(|byte| format!("{byte:02x}"));
                let build_id = build_id.collect::<String>().into();
                (module, path, build_id)
            };
            modules.map(text).collect()
        });
        let call = address.checked_sub(1)?;
        let (module, path, build_id) = modules.iter().find(|(m, ..)| m.contains(call))?;
        Some(Spot {
            module: path.clone(),
            offset: module.offset(call),
            build_id: build_id.clone(),
        })
    }
}

/// There is always one: an address without a name is a frame too.
fn look_up(address: usize) -> Rc<[Rc<Symbol>]> {
    let mut symbols = Vec::new();
    // What is recorded are return addresses. `resolve` knows, and looks one byte before.
    backtrace::resolve(address as *mut c_void, |symbol| {
        symbols.push(Rc::new(Symbol {
            // Without the hash at the end.
            function: symbol.name().map(|name| format!("{name:#}")),
            file: symbol
                .filename()
                .map(|file| file.to_string_lossy().into_owned()),
            line: symbol.lineno(),
            column: symbol.colno(),
        }));
    });
    if symbols.is_empty() {
        symbols.push(Rc::default());
    }
    symbols.into()
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
        if let Some(spot) = &found.spot {
            let program = std::env::current_exe().unwrap();
            assert_eq!(&*spot.module, program.to_str().unwrap());
            assert!(spot.offset < found.address && program.ends_with(spot.name()));
        }
        assert!(symbols.known.len() <= stack.len());
        let again = symbols.frames(&stack, false);
        assert_eq!(again.len(), frames.len());
        // What called the program is not looked up unless somebody wants it.
        let known = symbols.known.len();
        assert!(symbols.frames(&stack, true).len() > frames.len());
        assert!(symbols.known.len() > known);
    }

    #[test]
    fn an_address_without_a_name_is_a_frame() {
        let frames = Symbols::default().frames(&[1], false);
        assert_eq!(frames.len(), 1);
        assert_eq!((frames[0].address, &frames[0].symbol.function), (1, &None));
        assert_eq!(frames[0].spot, None);
    }
}
