//! Names of functions for addresses: the interface between a run and symbol tables.

use cuguard_recording::{Module, Stack};

use crate::run::Frame;

/// Resolves return addresses of a recorded process.
///
/// ```
/// use cuguard_view::{Frame, Resolver};
///
/// struct Known;
///
/// impl Resolver for Known {
///     fn frames(&mut self, address: u64) -> Vec<Frame> {
///         vec![Frame { function: format!("f{address}"), ..Frame::default() }]
///     }
/// }
/// assert_eq!(Known.frames(7)[0].function, "f7");
/// ```
pub trait Resolver {
    /// The functions at a return address: inlined functions first, and the function that they are inlined into last.
    /// Never empty. Called for every frame of every stack trace, so it should remember what it found.
    fn frames(&mut self, address: u64) -> Vec<Frame>;

    /// The functions at an address of this stack. Where libraries replaced each other at an address, that is not the same for
    /// all stacks.
    fn frames_in(&mut self, stack: &Stack, address: u64) -> Vec<Frame> {
        let _ = stack;
        self.frames(address)
    }
}

/// Names no functions: a frame is the name of a module and the offset in it, or the address.
///
/// ```
/// use cuguard_recording::Module;
/// use cuguard_view::{Offsets, Resolver};
///
/// let modules = [Module { path: "/opt/app".to_owned(), start: 0x1000, end: 0x2000, bias: 0x1000, ..Module::default() }];
/// let mut offsets = Offsets::new(&modules);
/// assert_eq!(offsets.frames(0x1010)[0].function, "app+0x10");
/// assert_eq!(offsets.frames(0x9000)[0].function, "0x9000");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Offsets {
    modules: Vec<Module>,
}

impl Offsets {
    /// For a process with these modules.
    #[must_use]
    pub fn new(modules: &[Module]) -> Self {
        Self {
            modules: modules.to_vec(),
        }
    }
}

impl Resolver for Offsets {
    fn frames(&mut self, address: u64) -> Vec<Frame> {
        // The newest first: a library that was unloaded may have had the same addresses.
        let contains = |module: &&Module| (module.start..module.end).contains(&address);
        let module = self.modules.iter().rev().find(contains);
        let (function, library) = match module {
            Some(module) => {
                let name = file_name(&module.path);
                let offset = address.wrapping_sub(module.bias);
                (format!("{name}+{offset:#x}"), name.to_owned())
            }
            None => (format!("{address:#x}"), String::new()),
        };
        vec![Frame {
            function,
            library,
            in_app: true,
            ..Frame::default()
        }]
    }
}

/// What follows the last slash.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
