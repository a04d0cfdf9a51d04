//! Searches the program's writable memory, stacks and registers for the addresses that the program still holds.
//!
//! ```text
//!   targets ─► stop the threads ─► mappings, cut and labelled ─► scan in parallel ─► run on ─► name the places
//! ```
//!
//! The search is conservative, like that of a garbage collector: each aligned word that has the value of an address
//! counts, also of an address inside the block, unless the word is in a heap block that nothing leads to. The search
//! leaves out memory of the driver and of this library, freed memory of glibc's heaps and the state of its arenas, dead
//! parts of stacks, and device memory. It scans managed memory last, and only the blocks that it has found.
//!
//! | file | |
//! |---|---|
//! | `targets` | the addresses, arranged for fast comparison |
//! | `maps`, `modules`, `stacks` | mappings, libraries, stacks and thread-local storage |
//! | `layout`, `survey`, `variables` | what is searched; the variables of an ELF file |
//! | `glibc`, `malloc_state`, `python` | freed chunks; pointers of `malloc` itself; integers of CPython |
//! | `memory`, `read`, `scan`, `workers` | reading without faults, comparing, threads of the search |
//! | `managed` | managed memory: what is found is searched in turn |
//! | `blocks`, `reach`, `resolve` | blocks of the heap, which of them the program reaches, and how |
//! | `stop`, `restart`, `task` | other threads; the system calls that this interrupts; what the system says of threads |
//! | `entry`, `caller`, `interrupted` | where threads entered this library, by a call or a signal |
//! | `context` | the registers of threads, stored and read |
//! | `rank`, `place`, `names` | where an address was found |
//! | `exports` | the search for programs and tests |
//!
//! It knows nothing of the registry and calls no driver.

pub(crate) mod alternate_stack;
mod blocks;
mod caller;
mod context;
mod entry;
mod exports;
mod glibc;
mod interrupted;
mod layout;
mod malloc_state;
mod managed;
mod maps;
mod memory;
mod modules;
mod names;
mod place;
mod python;
mod rank;
mod reach;
mod read;
mod resolve;
mod restart;
mod scan;
mod stacks;
mod stop;
mod survey;
mod targets;
mod task;
mod variables;
mod workers;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) use caller::{Caller, entry_point};
pub(crate) use entry::{Entered, Mark, call_begins, call_ends};
pub(crate) use place::Place;
pub(crate) use stop::process_ends;
pub(crate) use targets::Target;

use crate::heap::{self, NextMalloc};
use glibc::Glibc;
use memory::Memory;
use python::Python;
use rank::Rank;
use read::Reader;
use resolve::Hold;
use scan::Scan;
use survey::{Known, Survey};
use targets::Targets;
use workers::Workers;

/// How far a search goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The search ends then, and says what it left out.
    pub(crate) time: Duration,
    /// Further threads of the search.
    pub(crate) helpers: usize,
}

/// Whether searches create no threads.
static ALONE: AtomicBool = AtomicBool::new(false);

/// Searches create no threads from now on: the calling thread has locked the dynamic linker, and each new thread would wait
/// for it.
pub(crate) fn search_alone() {
    ALONE.store(true, Ordering::Relaxed);
}

impl Default for Limits {
    /// Five seconds, and a thread for each processor, up to 16. One helper at least: the search learns from it where the C
    /// library has the stack of a thread.
    fn default() -> Limits {
        let processors = || std::thread::available_parallelism().map_or(1, |count| count.get());
        Limits {
            time: Duration::from_secs(5),
            helpers: match ALONE.load(Ordering::Relaxed) {
                true => 0,
                false => processors().clamp(2, 16) - 1,
            },
        }
    }
}

/// What a search found.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// For each target where the program holds it, if anywhere, as an index of the places: of several places the one that says most.
    /// A place that the program cannot reach is one only where there is no other.
    pub(crate) found: Vec<Option<usize>>,
    /// The places, each once.
    pub(crate) places: Vec<Place>,
    /// What the search left out for lack of time or information, in words.
    pub(crate) cut_short: Option<String>,
    /// Whether all of the program's memory was searched: what was not found is lost.
    pub(crate) all_searched: bool,
    pub(crate) bytes_searched: u64,
    pub(crate) elapsed: Duration,
}

impl Outcome {
    /// Where the program holds a target.
    pub(crate) fn place(&self, target: usize) -> Option<&Place> {
        self.places.get((*self.found.get(target)?)?)
    }
}

/// One search at a time: there is one set of slots for stopped threads.
struct One(());

/// The process whose thread searches; zero for none. A child of `fork` may find its parent's number here.
static SEARCHING: AtomicI32 = AtomicI32::new(0);

impl One {
    fn wait() -> One {
        // SAFETY: no requirements.
        let own = unsafe { libc::getpid() };
        loop {
            let found = SEARCHING.load(Ordering::Relaxed);
            let is_free = found != own;
            if is_free
                && SEARCHING
                    .compare_exchange(found, own, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return One(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for One {
    fn drop(&mut self) {
        SEARCHING.store(0, Ordering::Release);
    }
}

/// Searches the process's memory for the targets. Stops the other threads meanwhile.
///
/// The caller's own frames are left out if an [`Entered`] marks where the thread entered this library.
pub(crate) fn search(targets: &[Target], limits: Limits) -> Outcome {
    let _one = One::wait();
    let begun = Instant::now();
    let entered = entry::current().is_none().then(Entered::here);
    heap::driver_loaded();
    let arranged = Targets::new(targets);
    let memory = Memory::open();
    let modules = modules::read();
    let python = Python::find();
    let glibc = (heap::next_malloc() == NextMalloc::Glibc).then(|| {
        let libraries = modules
            .iter()
            .filter(|module| module.is_libc() || module.is_linker());
        Glibc::examine(libraries.flat_map(|library| library.data.clone()).collect())
    });
    let workers = Workers::new(limits.helpers);
    let managed: Vec<_> = arranged.managed().values().cloned().collect();
    let room = match managed.is_empty() {
        true => None,
        false => managed::room(),
    };

    // From here to the drop of `stopped` nothing may use `malloc` or the dynamic linker: a stopped thread may hold
    // their locks.
    let stopped = stop::stop(&memory);
    let known = Known {
        modules,
        glibc,
        managed,
    };
    let survey = Survey::new(&memory, &stopped, known);
    let holes = survey.holes(&memory, &workers);
    let items = survey.items(&holes);
    // Not from the beginning: on a busy machine it takes time until all threads have stopped.
    let reader = Reader::new(&memory, &holes, Instant::now() + limits.time);
    let python = python.as_ref();
    let scan = Scan::new(&memory, &reader, &arranged, python);
    for (thread, registers) in survey.registers() {
        for value in registers {
            scan.value(*value, Rank::Register, thread as u64);
        }
    }
    let mut complete = workers.run(items.len(), &|part| scan.item(&items[part]));
    let (all_managed, too_large) =
        managed::search(&scan, &workers, &survey.regions, room.unwrap_or(0));
    complete &= all_managed;
    let bytes_searched = reader.searched.load(Ordering::Relaxed);
    let too_large = (too_large, managed::why_too_large(room));
    let left_out = left_out(&scan, &reader, &survey, limits, too_large, complete);
    let (holds, ways) = match left_out.is_empty() {
        true => resolve::Search {
            memory: &memory,
            workers: &workers,
            survey: &survey,
            scan: &scan,
            targets: &arranged,
            python,
            holes: &holes,
            reader: &reader,
        }
        .resolve(&items),
        // What leads to a block may be in what was not searched.
        false => (resolve::by_places(&scan, &arranged), Vec::new()),
    };
    drop(stopped);
    drop(workers);
    drop(entered);

    let mut names = names::Names::new(&survey);
    let mut places = Vec::new();
    // There may be millions of targets, and seldom more than a few places.
    let mut known: HashMap<Hold, Option<usize>> = HashMap::new();
    let mut numbers: HashMap<Place, usize> = HashMap::new();
    let found = (0..targets.len()).map(|target| {
        let hold = holds[arranged.group_of(target)];
        *known.entry(hold).or_insert_with(|| {
            let place = names.hold(hold, &ways)?;
            Some(*numbers.entry(place).or_insert_with_key(|place| {
                places.push(place.clone());
                places.len() - 1
            }))
        })
    });
    let found = found.collect();
    Outcome {
        found,
        places,
        all_searched: left_out.is_empty(),
        cut_short: cut_short(left_out),
        bytes_searched,
        elapsed: begun.elapsed(),
    }
}

/// What the search left out of the program's memory, in words. Addresses may be there. `too_large`: the bytes of managed
/// memory that did not fit, and why.
fn left_out(
    scan: &Scan<'_>,
    reader: &Reader<'_>,
    survey: &Survey,
    limits: Limits,
    (too_large, why_too_large): (u64, &str),
    complete: bool,
) -> Vec<String> {
    let mut parts = Vec::new();
    if survey.regions.is_empty() {
        parts.push("the memory map of the process could not be read".to_owned());
    }
    if !survey.all_listed {
        parts.push("the threads of the process could not be listed".to_owned());
    }
    let megabytes = |bytes: u64| (bytes != 0).then(|| bytes.div_ceil(1 << 20));
    let counted = |bytes: &AtomicU64| megabytes(bytes.load(Ordering::Relaxed));
    if let Some(left) = counted(&reader.left) {
        parts.push(format!(
            "the search ended after {:.1} s with {left} MiB of memory not searched",
            limits.time.as_secs_f64(),
        ));
    }
    if let Some(unread) = counted(&scan.unread) {
        parts.push(format!("{unread} MiB of memory could not be read"));
    }
    if let Some(unread) = counted(&scan.unread_managed) {
        parts.push(format!("{unread} MiB of managed memory could not be read"));
    }
    if let Some(left) = megabytes(too_large) {
        parts.push(format!(
            "{left} MiB of managed memory not searched: {why_too_large}"
        ));
    }
    match survey.running() {
        0 => {}
        1 => parts.push("one thread could not be stopped".to_owned()),
        count => parts.push(format!("{count} threads could not be stopped")),
    }
    match survey.without_registers() {
        0 => {}
        1 => parts.push("the registers of one thread could not be read".to_owned()),
        count => parts.push(format!(
            "the registers of {count} threads could not be read"
        )),
    }
    if !complete {
        parts.push("a part of memory could not be searched".to_owned());
    }
    parts
}

/// What the search left out, and what it could not tell apart.
fn cut_short(mut parts: Vec<String>) -> Option<String> {
    if !heap::separates_driver() {
        parts.push(
            "driver memory cannot be told from the program's (the program has its own malloc, or contains the simulated GPU), so addresses that only the \
             driver holds count as reachable"
                .to_owned(),
        );
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}
