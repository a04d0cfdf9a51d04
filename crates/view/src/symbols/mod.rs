//! Names of functions for the addresses of a recorded process, on any machine that has its files.
//!
//! ```text
//!     addresses ──► embedded symbols ──► files with the module's build id ──► module+0xoffset
//!                                         the recorded path, --symbols, /usr/lib/debug
//! ```
//!
//! A file counts only if its build id is that of the module that was recorded: names from another build would be wrong.
//! Addresses are resolved module by module, so that the debug information of one file at a time is in memory.
//!
//! This folder must not know events, allocations or how anything is shown.

mod files;
mod modules;
mod stack;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use addr2line::Loader;
use cuguard_recording::{Embedded, Frame as RecordedFrame, Module, Recording, Stack};
use cuguard_report::symbol_file::{Name, are_better, have_lines, names_at};
use cuguard_report::{FrameClass, FrameNames};

pub(crate) use self::stack::shown;
pub use self::stack::{call_site, foreign_frame};

use self::files::Files;
use self::modules::Place;
use crate::resolver::{Resolver, file_name};
use crate::run::Frame;

/// Where files with symbols are looked for, in addition to the paths of the recording and `/usr/lib/debug`.
///
/// ```
/// let options = cuguard_view::SymbolOptions { folders: vec!["/srv/symbols".into()] };
/// assert_eq!(options.folders.len(), 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SymbolOptions {
    /// Folders with copies of programs and libraries, or with debug information, at any depth: found by build id.
    pub folders: Vec<PathBuf>,
}

/// The names of all addresses of a recording.
///
/// ```
/// use cuguard_recording::{Frame, Recording, Stack};
/// use cuguard_view::{Resolver, SymbolOptions, Symbols};
///
/// let mut recording = Recording::default();
/// recording.stacks.push(Stack { frames: vec![Frame::Native(0x1234)], ..Stack::default() });
/// let mut symbols = Symbols::new(&recording, &SymbolOptions::default());
/// // In no module that was recorded.
/// assert_eq!(symbols.frames(0x1234)[0].function, "0x1234");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// The number of the module that an address of a stack trace is in.
    modules: HashMap<Place, usize>,
    known: HashMap<Code, Vec<Frame>>,
    problems: Vec<String>,
}

/// An address in the module with this number, or in none.
type Code = (u64, Option<usize>);

impl Symbols {
    /// Resolves all addresses of the recording.
    #[must_use]
    pub fn new(recording: &Recording, options: &SymbolOptions) -> Self {
        let places = places(recording);
        let newest = places.iter().map(|(address, _)| (*address, 0));
        let modules = modules::find(&recording.modules, newest.chain(places.iter().copied()));
        let code = |place: &Place| (place.0, modules.get(place).copied());
        let mut codes: BTreeSet<Code> = places.iter().map(code).collect();
        let mut symbols = Self::default();
        for embedded in &recording.symbols {
            // Looked up at the end: in the module that was at the address then.
            let code = code(&(embedded.address, 0));
            if !embedded.functions.is_empty() && codes.remove(&code) {
                let module = code.1.and_then(|number| recording.modules.get(number));
                let frames = frames(names_of(embedded), module, embedded.address);
                symbols.known.insert(code, frames);
            }
        }
        // A library that was loaded more than once is in the list as often.
        let mut by_module: BTreeMap<(&str, &str, u64), (&Module, Vec<Code>)> = BTreeMap::new();
        for code in codes {
            let Some(module) = code.1.and_then(|number| recording.modules.get(number)) else {
                continue;
            };
            let key = (&*module.path, &*module.build_id, module.bias);
            let (_, list) = by_module.entry(key).or_insert((module, Vec::new()));
            list.push(code);
        }
        let mut files = Files::new(&options.folders, recording.meta.started);
        for (module, codes) in by_module.into_values() {
            symbols.resolve(module, &codes, &mut files);
        }
        // Where names are embedded, the rest had none on the machine that recorded either.
        if recording.symbols.is_empty() {
            symbols.problems.append(&mut files.problems());
        }
        symbols.modules = modules;
        symbols
    }

    /// What could not be resolved and why, in words.
    ///
    /// ```
    /// assert!(cuguard_view::Symbols::default().problems().is_empty());
    /// ```
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Resolves the addresses of one module: by its first file, and those without a line by the next one.
    fn resolve(&mut self, module: &Module, codes: &[Code], files: &mut Files<'_>) {
        let mut names: Vec<(Code, Vec<Name>)> =
            codes.iter().map(|one| (*one, Vec::new())).collect();
        for file in files.of(module) {
            let loader = match Loader::new(&file) {
                Ok(loader) => loader,
                Err(error) => {
                    let line = format!("{}: no symbols: {error}", file.display());
                    self.problems.push(line);
                    continue;
                }
            };
            for ((address, _), names) in &mut names {
                if !have_lines(names) {
                    let found = names_at(&loader, probe(module, *address));
                    if are_better(&found, names) {
                        *names = found;
                    }
                }
            }
            if names.iter().all(|(_, names)| have_lines(names)) {
                break;
            }
        }
        for (code, names) in names {
            let frames = frames(names, Some(module), code.0);
            self.known.insert(code, frames);
        }
    }
}

impl Symbols {
    fn frames_at(&self, place: Place) -> Vec<Frame> {
        let code = (place.0, self.modules.get(&place).copied());
        let known = self.known.get(&code).cloned();
        known.unwrap_or_else(|| frames(Vec::new(), None, place.0))
    }
}

impl Resolver for Symbols {
    fn frames(&mut self, address: u64) -> Vec<Frame> {
        self.frames_at((address, 0))
    }

    fn frames_in(&mut self, stack: &Stack, address: u64) -> Vec<Frame> {
        self.frames_at((address, stack.later_modules))
    }
}

fn places(recording: &Recording) -> BTreeSet<Place> {
    let stacks = recording.stacks.iter();
    let places = stacks.flat_map(|stack| {
        stack.frames.iter().filter_map(|frame| match frame {
            RecordedFrame::Native(address) => Some((*address, stack.later_modules)),
            RecordedFrame::Foreign { .. } => None,
        })
    });
    places.collect()
}

/// The address of a call as the module's file has it.
fn probe(module: &Module, address: u64) -> u64 {
    address.wrapping_sub(module.bias).wrapping_sub(1)
}

fn names_of(embedded: &Embedded) -> Vec<Name> {
    let functions = embedded.functions.iter();
    let name = |(function, site): &(String, Option<cuguard_recording::Site>)| Name {
        function: Some(function.clone()).filter(|function| !function.is_empty()),
        file: site.as_ref().map(|site| site.file.clone()),
        line: site.as_ref().map_or(0, |site| site.line),
        column: 0,
    };
    functions.map(name).collect()
}

/// The frames at an address: at least one.
fn frames(names: Vec<Name>, module: Option<&Module>, address: u64) -> Vec<Frame> {
    let names = match names.is_empty() {
        true => vec![Name::default()],
        false => names,
    };
    let path = module.map_or("", |module| &*module.path);
    let library = file_name(path);
    let frame = |name: Name| {
        let class = FrameClass::of(&FrameNames {
            function: name.function.as_deref(),
            file: name.file.as_deref(),
            module: path,
            is_foreign: false,
        });
        let function = name.function.unwrap_or_else(|| match module {
            Some(module) => format!("{library}+{:#x}", probe(module, address)),
            None => format!("{address:#x}"),
        });
        Frame {
            function,
            file: name.file.unwrap_or_default(),
            line: name.line,
            library: library.to_owned(),
            in_app: class == FrameClass::User,
        }
    };
    names.into_iter().map(frame).collect()
}
