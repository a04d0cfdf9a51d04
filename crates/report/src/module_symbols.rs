//! The names of functions in libraries that can be unloaded, out of their files: what the address space has at an address may be
//! another library by now.

use std::path::PathBuf;

use addr2line::Loader;
use cuguard_stack::Module;

use crate::symbol_file::{
    Name, are_better, build_id, debug_files, have_lines, hexadecimal, names_at,
};

/// How many libraries are open at a time: the debug information of a large one takes a gigabyte.
const OPEN: usize = 4;

/// The files of a few libraries, the last used at the end.
#[derive(Default)]
pub(crate) struct ModuleSymbols {
    open: Vec<Files>,
}

impl std::fmt::Debug for ModuleSymbols {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let paths = self.open.iter().map(|files| &files.module.path);
        f.debug_list().entries(paths).finish()
    }
}

impl ModuleSymbols {
    /// The functions at an offset, inlined ones first. Empty without a name, and where the file is not the one that was loaded.
    pub(crate) fn names(&mut self, module: &'static Module, offset: usize) -> Vec<Name> {
        let known = self
            .open
            .iter()
            .position(|one| std::ptr::eq(one.module, module));
        let mut files = match known {
            Some(index) => self.open.remove(index),
            None => Files::new(module),
        };
        let names = files.names(offset as u64);
        if self.open.len() == OPEN {
            self.open.remove(0);
        }
        self.open.push(files);
        names
    }
}

/// The files of a library: its own, and those with its debug information.
struct Files {
    module: &'static Module,
    /// Those that were read.
    read: Vec<Loader>,
    /// Those that were not needed so far, the next one last.
    unread: Vec<PathBuf>,
}

impl Files {
    fn new(module: &'static Module) -> Self {
        let id = hexadecimal(&module.build_id);
        let is_same = module.is_same_file() && build_id(&module.path).as_deref() == Some(&*id);
        let own = is_same.then(|| module.path.clone());
        let mut unread: Vec<PathBuf> = own.into_iter().collect();
        // Without a build id, nothing shows that a file belongs to another.
        if !id.is_empty() {
            unread.extend(debug_files(&module.path, &id));
        }
        unread.reverse();
        Self {
            module,
            read: Vec::new(),
            unread,
        }
    }

    fn names(&mut self, offset: u64) -> Vec<Name> {
        let mut best = Vec::new();
        let mut next = 0;
        while !have_lines(&best) {
            if next == self.read.len() {
                let Some(path) = self.unread.pop() else {
                    break;
                };
                self.read.extend(Loader::new(path).ok());
                continue;
            }
            let names = names_at(&self.read[next], offset);
            if are_better(&names, &best) {
                best = names;
            }
            next += 1;
        }
        best
    }
}
