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
//! A file that is loaded again is the same module, wherever it is loaded. Without a build id that is known only while the file is in
//! its place: of a file that was removed or replaced, each load is a module of its own. Addresses in permanent code and in no module (code
//! that was generated at run time) stay as they are.
//!
//! The dynamic linker counts how often modules were loaded and unloaded: they are listed again only when that has changed.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{LazyLock, PoisonError, RwLock, RwLockReadGuard};

use super::mapped::Mappings;
use super::modules;
use crate::module::{FileStamp, Module, file_stamp, list, module_changes};

/// Set in a number that is not an address: no address of a process has this bit.
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

impl Identity {
    /// `None` where nothing tells a later load of this module from one of another.
    fn of(module: &Module) -> Option<Self> {
        if module.build_id.is_empty() && module.stamp.is_none() {
            return None;
        }
        Some(Self {
            path: module.path.clone(),
            build_id: module.build_id.clone(),
            stamp: module.stamp,
        })
    }
}

/// A module that is loaded, as the dynamic linker lists it.
#[derive(Clone)]
struct Loaded {
    base: usize,
    path: PathBuf,
    module: usize,
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
    /// What is loaded.
    loaded: Vec<Loaded>,
    /// What is loaded, by address.
    segments: Vec<Segment>,
    /// How many modules had been unloaded when they were listed.
    unloaded: u64,
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
    let (listed, unloaded) = list();
    let listed: Vec<Module> = listed.into_iter().filter(is_unloadable).collect();
    let mut loads = LOADS.write().unwrap_or_else(PoisonError::into_inner);
    // Otherwise another thread has listed them since.
    if loads.changes <= changes {
        loads.update(listed, unloaded);
        // From before the list: if they changed meanwhile, they are listed again.
        loads.changes = changes;
    }
    loads.number(frames);
}

/// A module as it is known for as long as the process runs: with an absolute path, and with a stamp where there is no build id.
/// `mappings` are read at most once for all modules of a list.
fn identified(mut module: Module, mappings: &mut Option<Mappings>) -> Module {
    // The kernel's own library has a name and no file.
    let is_file = module.path.components().nth(1).is_some();
    let is_relative = is_file && module.path.is_relative();
    if !is_relative && !module.build_id.is_empty() {
        return module;
    }
    let mappings = mappings.get_or_insert_with(Mappings::read);
    let file = mappings.file_at(module.code.first().map_or(0, |code| code.start));
    if is_relative {
        // The program may have changed its folder since.
        module.path = match &file {
            Some(file) => file.path.clone(),
            None => std::path::absolute(&module.path).unwrap_or(module.path),
        };
    }
    if module.build_id.is_empty() {
        let file = file.filter(|file| file.is_there);
        module.stamp = file.and_then(|file| file_stamp(&file.path));
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
    fn update(&mut self, listed: Vec<Module>, unloaded: u64) {
        let before = std::mem::take(&mut self.loaded);
        let is = |own: &Loaded, module: &Module| own.base == module.base && own.path == module.path;
        // If as many were unloaded as are missing, the others have stayed.
        let missing = before
            .iter()
            .filter(|own| !listed.iter().any(|module| is(own, module)));
        let have_stayed = missing.count() as u64 == unloaded.wrapping_sub(self.unloaded);
        self.unloaded = unloaded;
        self.segments.clear();
        let mut mappings = None;
        for module in listed {
            let (base, path, ranges) = (module.base, module.path.clone(), module.ranges.clone());
            let known = before.iter().find(|own| have_stayed && is(own, &module));
            let index = match known {
                Some(known) => known.module,
                None => self.index_of(identified(module, &mut mappings)),
            };
            self.loaded.push(Loaded {
                base,
                path,
                module: index,
            });
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

    /// The index of a module, which gets one if it was never loaded before.
    fn index_of(&mut self, module: Module) -> usize {
        let next = self.modules.len();
        let index = match Identity::of(&module) {
            Some(identity) => *self.indices.entry(identity).or_insert(next),
            None => next,
        };
        if index == next {
            self.modules.push(Box::leak(Box::new(module)));
        }
        index
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
