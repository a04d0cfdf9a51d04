//! The names behind addresses: looked up when a report is made, each distinct address once.

use std::collections::HashMap;
use std::ffi::c_void;
use std::rc::Rc;

/// One function at one address. Where functions were inlined there are several, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Symbol {
    pub(super) function: Option<String>,
    /// The file, as the compiler wrote it down.
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
    pub(super) column: Option<u32>,
}

/// A function on a stack.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) address: usize,
    pub(super) symbol: Rc<Symbol>,
    /// Whether the compiler put it into the function that follows.
    pub(super) inlined: bool,
    /// Whether a person wrote it, as far as one can tell; the others are cut away in text.
    pub(super) yours: bool,
}

/// The addresses of one report.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    known: HashMap<usize, Rc<[Rc<Symbol>]>>,
}

impl Symbols {
    /// All functions on a stack, innermost first.
    pub(super) fn frames(&mut self, stack: &[usize]) -> Vec<Frame> {
        let mut frames = Vec::with_capacity(stack.len());
        for address in stack {
            let symbols = self.at(*address);
            for (index, symbol) in symbols.iter().enumerate() {
                frames.push(Frame {
                    address: *address,
                    symbol: symbol.clone(),
                    inlined: index + 1 < symbols.len(),
                    yours: false,
                });
            }
        }
        frames
    }

    fn at(&mut self, address: usize) -> Rc<[Rc<Symbol>]> {
        self.known
            .entry(address)
            .or_insert_with(|| look_up(address))
            .clone()
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
        let frames = symbols.frames(&stack);
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
        assert!(
            frames.iter().any(|frame| is_here(&frame.symbol)),
            "{frames:#?}"
        );
        assert!(symbols.known.len() <= stack.len());
        let again = symbols.frames(&stack);
        assert_eq!(again.len(), frames.len());
    }

    #[test]
    fn an_address_without_a_name_is_a_frame() {
        let frames = Symbols::default().frames(&[1]);
        assert_eq!(frames.len(), 1);
        assert_eq!((frames[0].address, &frames[0].symbol.function), (1, &None));
    }
}
