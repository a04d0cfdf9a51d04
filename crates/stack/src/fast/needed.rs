//! The program and the libraries that it needs, which the dynamic linker loads before the program starts and never
//! unloads.

use libc::dl_phdr_info;

use crate::elf::{Dynamic, each};

/// How many modules are considered at most.
const MOST: usize = 128;

/// Calls `visit` with the program, and with each library that it needs, or that one of those needs.
pub(super) fn each_needed(mut visit: impl FnMut(&dl_phdr_info)) {
    // The dynamic linker's lock is held within a visit, and may be locked again: nothing is unloaded meanwhile.
    each(|_| {
        let mut loaded: [Option<Dynamic>; MOST] = [None; MOST];
        let mut count = 0;
        each(|info| {
            loaded[count] = Dynamic::of(info);
            count += 1;
            count == MOST
        });
        let loaded = &loaded[..count];
        let mut needed = [false; MOST];
        // The program is the first.
        needed[0] = true;
        let mut expanded = [false; MOST];
        while let Some(next) = (0..count).find(|at| needed[*at] && !expanded[*at]) {
            expanded[next] = true;
            let names = loaded[next].iter().flat_map(Dynamic::needed);
            for name in names {
                let is_named =
                    |module: &Option<Dynamic>| module.is_some_and(|own| own.is_named(name));
                // The first of this name: those that were loaded later are behind.
                if let Some(at) = loaded.iter().position(is_named) {
                    needed[at] = true;
                }
            }
        }
        let mut at = 0;
        each(|info| {
            if needed[at] {
                visit(info);
            }
            at += 1;
            at == count
        });
        true
    });
}
