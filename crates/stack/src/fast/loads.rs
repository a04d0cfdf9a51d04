//! Frames of modules that can be unloaded, as numbers that stand for the same code for as long as the process runs.
//!
//! An address stands for the code of whatever module is loaded there. So a return address in a module that can be unloaded
//! is replaced by a number, while the module is on the stack and therefore loaded:
//!
//! ```text
//!     bit 63   0; callers may use it for frames of their own
//!     bit 62   1
//!     26 bits  the index of the module among all that were ever seen on a stack
//!     36 bits  the offset in the module
//! ```
//!
//! A file that is loaded again is the same module, wherever it is loaded. Addresses in permanent code and in no module (code
//! that was generated at run time) stay as they are.
//!
//! The dynamic linker counts how often modules were loaded and unloaded: they are listed again only when that has changed.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{LazyLock, PoisonError, RwLock, RwLockReadGuard};

use super::modules;
use crate::module::{FileStamp, Module, module_changes};

/// Set in a number that is no address: no address of a process has this bit.
const NUMBERED: usize = 1 << 62;

const OFFSET_BITS: u32 = 36;
const MODULE_BITS: u32 = 26;

/// What makes two loads loads of one module.
#[derive(PartialEq, Eq, Hash)]
struct Identity {
    path: PathBuf,
    build_id: Vec<u8>,
    /// Where there is no build id.
    stamp: Option<FileStamp>,
}

/// A segment of a module that can be unloaded.
struct Segment {
    range: Range<usize>,
    base: usize,
    module: usize,
}

#[derive(Default)]
struct Loads {
    /// By index. They are never freed.
    modules: Vec<&'static Module>,
    indices: HashMap<Identity, usize>,
    /// What is loaded, by address.
    segments: Vec<Segment>,
    /// How often modules had been loaded and unloaded when they were listed.
    changes: u64,
}

static LOADS: LazyLock<RwLock<Loads>> = LazyLock::new(RwLock::default);

fn read() -> RwLockReadGuard<'static, Loads> {
    LOADS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Replaces return addresses in modules that can be unloaded. The modules must stay loaded meanwhile.
#[cold]
#[inline(never)]
pub(crate) fn number(frames: &mut [usize]) {
    let changes = module_changes();
    {
        let loads = read();
        if loads.changes == changes {
            return loads.number(frames);
        }
    }
    // Listed without the lock: the dynamic linker calls constructors with its own lock held, and those may get here.
    let listed = crate::modules();
    let listed: Vec<Module> = listed
        .into_iter()
        .filter(is_unloadable)
        .map(identified)
        .collect();
    let mut loads = LOADS.write().unwrap_or_else(PoisonError::into_inner);
    // Otherwise another thread has listed them since.
    if loads.changes <= changes {
        loads.update(listed);
        // From before the list: if they changed meanwhile, they are listed again.
        loads.changes = changes;
    }
    loads.number(frames);
}

/// As it is known for as long as the process runs: with an absolute path, and with a stamp where there is no build id.
fn identified(mut module: Module) -> Module {
    // A library that was loaded as `./libx.so` is looked for from another folder later.
    let is_file = module.path.components().nth(1).is_some();
    if let Ok(absolute) = std::path::absolute(&module.path)
        && is_file
    {
        module.path = absolute;
    }
    if module.build_id.is_empty() {
        module.stamp = module.file_stamp();
    }
    module
}

/// The module of a frame, and the offset in it; `None` for a frame that is an address.
pub(crate) fn locate(frame: usize) -> Option<(&'static Module, usize)> {
    let index = frame.checked_sub(NUMBERED)? >> OFFSET_BITS;
    let module = *read().modules.get(index)?;
    Some((module, frame & ((1 << OFFSET_BITS) - 1)))
}

impl Loads {
    fn update(&mut self, listed: Vec<Module>) {
        self.segments.clear();
        for module in listed {
            let identity = Identity {
                path: module.path.clone(),
                build_id: module.build_id.clone(),
                stamp: module.stamp,
            };
            let (base, ranges) = (module.base, module.ranges.clone());
            let next = self.modules.len();
            let index = *self.indices.entry(identity).or_insert(next);
            if index == next {
                self.modules.push(Box::leak(Box::new(module)));
            }
            let segments = ranges.into_iter().map(|range| Segment {
                range,
                base,
                module: index,
            });
            self.segments.extend(segments);
        }
        self.segments
            .sort_unstable_by_key(|segment| segment.range.start);
    }

    fn number(&self, frames: &mut [usize]) {
        for frame in frames {
            // The call is before the return address, and may be the last instruction of its segment.
            let call = frame.wrapping_sub(1);
            let after = self.segments.partition_point(|one| one.range.start <= call);
            let Some(before) = after.checked_sub(1) else {
                continue;
            };
            let segment = &self.segments[before];
            let offset = frame.wrapping_sub(segment.base);
            let fits = offset >> OFFSET_BITS == 0 && segment.module >> MODULE_BITS == 0;
            if segment.range.contains(&call) && fits {
                *frame = NUMBERED | segment.module << OFFSET_BITS | offset;
            }
        }
    }
}

/// Whether a module can be unloaded.
pub(crate) fn is_unloadable(module: &Module) -> bool {
    modules::record_permanent_once();
    let mut code = module.code.iter();
    !code.any(|range| modules::is_permanent(range.start))
}
