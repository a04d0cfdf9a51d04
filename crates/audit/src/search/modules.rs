//! The program and its libraries: where their variables are, and whose they are.

use std::ops::Range;

use crate::heap::{driver, objects};

/// The program's file. `/proc/self/exe` cannot be read once the main thread has ended.
const PROGRAM: &str = "/proc/thread-self/exe";

/// Whose variables a module holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    Program,
    /// The driver, or this library: both hold every address.
    LeftOut,
}

/// The program or a library.
pub(super) struct Module {
    /// The path as the dynamic linker has it; [`PROGRAM`] for the program.
    pub(super) path: String,
    pub(super) base: u64,
    /// Writable segments, `.bss` included.
    pub(super) data: Vec<Range<u64>>,
    pub(super) owner: Owner,
    /// Number in the threads' tables of TLS blocks, and the size of a block. Zero without.
    pub(super) tls_module: u64,
    pub(super) tls_size: u64,
}

impl Module {
    /// Whether it is the C library.
    pub(super) fn is_libc(&self) -> bool {
        self.path.ends_with("/libc.so.6")
    }

    /// Whether it is the dynamic linker.
    pub(super) fn is_linker(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.starts_with("ld-linux") || name.starts_with("ld64.so")
    }

    /// The file name, for reports.
    pub(super) fn name(&self) -> String {
        let path = match self.path.as_str() {
            PROGRAM => std::fs::read_link(&self.path)
                .map_or_else(|_| "the program".into(), |path| path.display().to_string()),
            path => path.to_owned(),
        };
        path.rsplit('/').next().unwrap_or(&path).to_owned()
    }
}

/// The modules that are loaded now. Takes the dynamic linker's lock.
pub(super) fn read() -> Vec<Module> {
    let own = objects::own_address();
    let mut modules = Vec::new();
    objects::for_each(|object| {
        let is_left_out = object.contains(own) || driver::is_driver(object.file_name());
        let mut tls = object.headers().iter();
        let tls = tls.rfind(|header| header.p_type == libc::PT_TLS);
        modules.push(Module {
            path: match object.path() {
                b"" => PROGRAM.to_owned(),
                path => String::from_utf8_lossy(path).into_owned(),
            },
            base: object.base() as u64,
            data: object
                .segments(libc::PF_W)
                .map(|segment| segment.start as u64..segment.end as u64)
                .collect(),
            owner: if is_left_out && !cfg!(test) {
                Owner::LeftOut
            } else {
                Owner::Program
            },
            tls_module: object.tls_module() as u64,
            tls_size: tls.map_or(0, |header| header.p_memsz),
        });
        true
    });
    modules
}
