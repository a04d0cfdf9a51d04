//! What a search goes over: mappings, labels, threads, heaps.

use std::ops::Range;
use std::sync::Mutex;

use cuguard_sync::own_thread;

use super::blocks::Blocks;
use super::entry;
use super::glibc::Glibc;
use super::layout::{self, Label, Piece};
use super::maps::{self, Region};
use super::memory::Memory;
use super::modules::{Module, Owner};
use super::rank::Rank;
use super::read::{Part, holes_in, parts};
use super::scan::{Holder, Item};
use super::stacks::{self, RED_ZONE, TlsBlock};
use super::stop::{State, Stopped, Thread};
use super::workers::Workers;
use crate::heap;
use crate::heap::threads::{is_own, left_out, thread_id};

/// What was found out before the threads were stopped.
pub(super) struct Known {
    pub(super) modules: Vec<Module>,
    pub(super) glibc: Option<Glibc>,
    /// Managed memory, which is searched later.
    pub(super) managed: Vec<Range<u64>>,
}

pub(super) struct Survey {
    pub(super) modules: Vec<Module>,
    glibc: Option<Glibc>,
    /// None where the system does not say.
    pub(super) regions: Vec<Region>,
    /// Whether all threads are known.
    pub(super) all_listed: bool,
    /// The calling thread first.
    pub(super) threads: Vec<Thread>,
    pub(super) tls: Vec<(usize, TlsBlock)>,
    /// The C library's thread-local variables, of all threads.
    libc_tls: Vec<Range<u64>>,
    pub(super) labels: Vec<(Range<u64>, Label)>,
    pieces: Vec<Piece>,
}

impl Survey {
    pub(super) fn new(memory: &Memory, stopped: &Stopped, known: Known) -> Survey {
        let mut threads = vec![calling_thread(memory)];
        threads.extend(stopped.threads(memory));
        let mut survey = Survey {
            modules: known.modules,
            glibc: known.glibc,
            regions: maps::read(),
            all_listed: stopped.all_listed,
            threads,
            tls: Vec::new(),
            libc_tls: Vec::new(),
            labels: Vec::new(),
            pieces: Vec::new(),
        };
        survey.label_modules();
        let mut live = Vec::new();
        for index in 0..survey.threads.len() {
            live.extend(survey.label_thread(memory, index));
        }
        live.extend(survey.leave_threads_out(memory));
        survey.leave_dead_stacks_out(memory, &live);
        let own = heap::range();
        let own = own.start as u64..own.end as u64;
        survey.labels.push((own, Label::LeftOut));
        survey.leave_recording_out();
        let managed = known.managed.into_iter();
        survey
            .labels
            .extend(managed.map(|addresses| (addresses, Label::LeftOut)));
        survey.pieces = layout::pieces(&survey.regions, &survey.labels);
        survey
    }

    /// Leaves out the recording of the process, which may have gigabytes.
    fn leave_recording_out(&mut self) {
        let recording = cuguard_recording::mapped_ranges();
        self.labels.extend(recording.map(|range| {
            let addresses = range.start as u64..range.end as u64;
            (addresses, Label::LeftOut)
        }));
    }

    fn label_modules(&mut self) {
        for (index, module) in self.modules.iter().enumerate() {
            let label = match module.owner {
                Owner::Program => Label::Module(index as u32),
                Owner::LeftOut => Label::LeftOut,
            };
            let data = module.data.iter();
            self.labels.extend(data.map(|data| (data.clone(), label)));
        }
    }

    /// Labels a thread's stack and thread-local storage. Returns its `pthread_self()`.
    fn label_thread(&mut self, memory: &Memory, index: usize) -> Option<u64> {
        let thread = &self.threads[index];
        let number = index as u32;
        // SAFETY: no requirements.
        let is_main = thread.id == unsafe { libc::getpid() };
        let region = |address: u64| {
            let mut regions = self.regions.iter();
            regions.find(|region| region.addresses.contains(&address))
        };
        let Some(state) = &thread.state else {
            let stack = self.stack_of_unstopped(thread, is_main);
            self.labels
                .extend(stack.into_iter().flatten().map(|(part, live)| match live {
                    true => (part, Label::Stack(number)),
                    false => (part, Label::LeftOut),
                }));
            return None;
        };
        let (pointer, top) = (state.pointer, state.stack_pointer);
        let alternate = state.alternate.clone();
        let stack = if is_main {
            region(top)
                .filter(|region| region.name == "[stack]")
                .map(|region| region.addresses.clone())
        } else {
            stacks::stack_of(memory, pointer).or_else(|| {
                // Where the C library's structure is not understood: a stack of its own has the structure, too.
                let region = region(top)?;
                region
                    .addresses
                    .contains(&pointer)
                    .then(|| region.addresses.clone())
            })
        };
        let stack = stack.unwrap_or(0..0);
        if stack.contains(&top) && !state.is_on_alternate {
            let live = top.saturating_sub(RED_ZONE).max(stack.start);
            self.labels.push((stack.start..live, Label::LeftOut));
            self.labels.push((live..stack.end, Label::Stack(number)));
        } else {
            // On a stack of the program's own, or on an alternate one, which may be an array in a frame that the handler has
            // interrupted: which part of this one is dead is not known.
            self.labels.push((stack, Label::Stack(number)));
        }
        self.labels.push((alternate, Label::LeftOut));
        for block in stacks::tls_of(memory, pointer, &self.modules) {
            self.note_libc_tls(&block);
            let is_left_out = block
                .module
                .is_some_and(|module| self.modules[module].owner == Owner::LeftOut);
            let label = match is_left_out {
                true => Label::LeftOut,
                false => Label::ThreadLocal(number),
            };
            self.labels.push((block.addresses.clone(), label));
            self.tls.push((index, block));
        }
        Some(pointer)
    }

    /// The stack of a thread that could not be stopped, where it can be known, in parts that are live or not. All of an
    /// unknown one is searched as a mapping.
    fn stack_of_unstopped(
        &self,
        thread: &Thread,
        is_main: bool,
    ) -> Option<[(Range<u64>, bool); 2]> {
        let at = self
            .regions
            .iter()
            .position(|region| match thread.waiting {
                Some(top) => region.addresses.contains(&top),
                None => is_main && region.name == "[stack]",
            })?;
        let region = &self.regions[at];
        let Range { start, end } = region.addresses;
        // The C library puts a page without access below each stack.
        let below = at.checked_sub(1).map(|below| &self.regions[below]);
        let is_guarded = below.is_some_and(|below| !below.writable && below.addresses.end == start);
        if region.name != "[stack]" && !is_guarded {
            return None;
        }
        let live = thread
            .waiting
            .map_or(start, |top| top.saturating_sub(RED_ZONE).max(start));
        Some([(start..live, false), (live..end, true)])
    }

    /// Leaves out the stacks of threads that ended. `live` are the `pthread_self()` of those whose state is known; where a
    /// thread runs, any other stack may be its.
    fn leave_dead_stacks_out(&mut self, memory: &Memory, live: &[u64]) {
        if self.running() > 0 {
            return;
        }
        let waiting = self.threads.iter().filter_map(|thread| thread.waiting);
        let waiting: Vec<_> = waiting.collect();
        for stack in stacks::dead_stacks(memory, &self.regions, live) {
            if !waiting.iter().any(|top| stack.contains(top)) {
                self.labels.push((stack, Label::LeftOut));
            }
        }
    }

    /// Leaves out the stacks of threads of the driver and this library. Returns their `pthread_self()`.
    fn leave_threads_out(&mut self, memory: &Memory) -> Vec<u64> {
        let pointers = heap::threads::all_left_out();
        for pointer in &pointers {
            let stack = stacks::stack_of(memory, *pointer);
            self.labels
                .extend(stack.map(|stack| (stack, Label::LeftOut)));
            for block in stacks::tls_of(memory, *pointer, &self.modules) {
                self.note_libc_tls(&block);
                self.labels.push((block.addresses, Label::LeftOut));
            }
        }
        pointers
    }

    fn note_libc_tls(&mut self, block: &TlsBlock) {
        let module = block.module.map(|module| &self.modules[module]);
        if module.is_some_and(Module::is_libc) {
            self.libc_tls.push(block.addresses.clone());
        }
    }

    /// The registers of the threads, with the threads' numbers.
    pub(super) fn registers(&self) -> impl Iterator<Item = (usize, &[u64])> {
        let threads = self.threads.iter().enumerate();
        threads.filter_map(|(index, thread)| {
            let state = thread.state.as_ref()?;
            Some((index, state.registers.as_slice()))
        })
    }

    /// Threads of the program whose registers are not known: they block signals, and wait in the kernel, or have left this
    /// library since. The crate in the program has such threads, too, which hold nothing of the program.
    pub(super) fn without_registers(&self) -> usize {
        let is_unknown = |thread: &&Thread| match &thread.entry {
            None => thread.state.is_none() && thread.waiting.is_some(),
            known => entry::of(thread.id) != *known,
        };
        let threads = self.threads.iter().filter(is_unknown);
        threads
            .filter(|thread| !own_thread::is_own(thread.id))
            .count()
    }

    /// Threads that could not be stopped and ran.
    pub(super) fn running(&self) -> usize {
        let threads = self.threads.iter();
        threads
            .filter(|thread| thread.state.is_none() && thread.waiting.is_none())
            .count()
    }

    /// What is `malloc`'s and not the program's, sorted: freed chunks of the heaps, and pointers of its own.
    pub(super) fn holes(&self, memory: &Memory, workers: &Workers) -> Vec<Range<u64>> {
        let Some(glibc) = &self.glibc else {
            return Vec::new();
        };
        let heaps = glibc.heaps(memory, &self.regions);
        let cached = glibc.cached(memory, &self.libc_tls);
        let main_arena = glibc.main_arena(memory, &self.regions);
        let holes = Mutex::new(main_arena.pointers.clone());
        workers.run(heaps.len(), &|part| {
            let found = glibc.holes(memory, &heaps[part], &main_arena, cached.as_deref());
            if let Ok(mut holes) = holes.lock() {
                holes.extend(found);
            }
        });
        let mut holes = holes.into_inner().unwrap_or_default();
        holes.sort_unstable_by_key(|hole| hole.start);
        holes
    }

    /// The blocks of the program's heaps that are in use: all but the free chunks. `None` where the program's `malloc` is not
    /// glibc's, or there are too many. A heap that is not consistent is left out.
    pub(super) fn blocks(&self, memory: &Memory, free: &[Range<u64>]) -> Option<Blocks> {
        let glibc = self.glibc.as_ref()?;
        let heaps = glibc.heaps(memory, &self.regions);
        let mut heaps: Vec<_> = heaps
            .iter()
            .filter_map(|heap| glibc.used_chunks(memory, heap, free))
            .collect();
        let large = Glibc::mapped_chunks(memory, &self.regions).into_iter();
        heaps.extend(large.map(|(at, size)| (at..at + size, vec![(at, size)])));
        heaps.sort_unstable_by_key(|(addresses, _)| addresses.start);
        let mut blocks = Blocks::default();
        for (addresses, chunks) in heaps {
            if !blocks.add(addresses, &chunks) {
                return None;
            }
        }
        Some(blocks)
    }

    /// What the driver keeps: its blocks, and its variables.
    pub(super) fn driver_memory(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let blocks = heap::driver_memory().into_iter();
        let blocks = blocks.map(|block| block.start as u64..block.end as u64);
        let modules = self.modules.iter();
        let modules = modules.filter(|module| module.owner == Owner::LeftOut);
        let variables = modules.flat_map(|module| module.data.clone());
        // This library's own variables hold nothing of the program.
        let variables = variables.filter(|data| !is_own(data.start as usize));
        blocks.chain(variables)
    }

    /// Whether the driver has the memory at an address: in the arena, or a variable.
    pub(super) fn is_driver(&self, address: u64) -> bool {
        let modules = self.modules.iter();
        let modules = modules.filter(|module| module.owner == Owner::LeftOut);
        let mut variables = modules.flat_map(|module| &module.data);
        heap::range().contains(&(address as usize)) || variables.any(|data| data.contains(&address))
    }

    /// Whether an address is in a variable of the C library or the dynamic linker.
    pub(super) fn is_c_library(&self, address: u64) -> bool {
        let modules = self.modules.iter();
        let mut modules = modules.filter(|module| module.is_libc() || module.is_linker());
        modules.any(|module| module.data.iter().any(|data| data.contains(&address)))
    }

    /// The parts of the search, those first whose places say most.
    pub(super) fn items(&self, holes: &[Range<u64>]) -> Vec<Item> {
        let mut items = Vec::new();
        for piece in &self.pieces {
            let region = &self.regions[piece.region as usize];
            let rank = match piece.label {
                Label::Region(_) if region.is_anonymous() || region.name == "[heap]" => Rank::Heap,
                Label::Region(_) | Label::LeftOut => Rank::Mapping,
                Label::Module(_) => Rank::Global,
                Label::Stack(_) => Rank::Stack,
                Label::ThreadLocal(_) => Rank::ThreadLocal,
            };
            for addresses in parts(piece.addresses.clone()) {
                items.push(Item {
                    part: Part {
                        holes: holes_in(holes, &addresses),
                        addresses,
                        private: region.is_empty_untouched(),
                    },
                    holder: Holder::Own(rank),
                });
            }
        }
        items.sort_by_key(|item| match item.holder {
            Holder::Own(Rank::Heap) => 1,
            Holder::Own(Rank::Mapping) => 2,
            _ => 0,
        });
        items
    }
}

/// The thread that searches.
fn calling_thread(memory: &Memory) -> Thread {
    let id = thread_id();
    if left_out(id).is_some() {
        return Thread {
            id,
            state: Some(State {
                stack_pointer: 0,
                pointer: 0,
                registers: Vec::new(),
                alternate: 0..0,
                is_on_alternate: false,
            }),
            entry: None,
            waiting: None,
        };
    }
    let state = entry::current().map(|entry| State::of(memory, &entry));
    Thread {
        id,
        state: state.or_else(|| {
            Some(State {
                stack_pointer: 0,
                // SAFETY: no requirements.
                pointer: unsafe { libc::pthread_self() },
                registers: Vec::new(),
                alternate: 0..0,
                is_on_alternate: false,
            })
        }),
        entry: None,
        waiting: None,
    }
}
