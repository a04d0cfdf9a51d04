//! Names for what was found: variables from the symbol tables of the files, threads, mappings.

use std::collections::HashMap;
use std::fs::File;

use cuguard_report::demangle;

use super::layout::Label;
use super::place::{Block, Place};
use super::rank::{Rank, Spot};
use super::reach::{Step, Way};
use super::resolve::Hold;
use super::survey::Survey;
use super::task;
use super::variables::Variables;

/// Looks names up, each table once.
pub(super) struct Names<'a> {
    survey: &'a Survey,
    symbols: HashMap<usize, Option<Variables<File>>>,
    modules: HashMap<usize, String>,
    threads: HashMap<usize, String>,
    /// All blocks of a managed list have the place of the first.
    last: Option<(Spot, Place)>,
}

impl Names<'_> {
    pub(super) fn new(survey: &Survey) -> Names<'_> {
        Names {
            survey,
            symbols: HashMap::new(),
            modules: HashMap::new(),
            threads: HashMap::new(),
            last: None,
        }
    }

    /// Where the program holds something, if anywhere.
    pub(super) fn hold(&mut self, hold: Hold, ways: &[Way]) -> Option<Place> {
        Some(match hold {
            Hold::Nowhere => return None,
            Hold::At(found) if found.by_managed => Place::Managed {
                from: Box::new(self.place(found.spot)),
            },
            Hold::At(found) => self.place(found.spot),
            Hold::By(way) => self.way(&ways[way]),
            Hold::InLost(step) => Place::LostBlock(self.block(step)),
        })
    }

    /// What a place is called.
    fn place(&mut self, spot: Spot) -> Place {
        if let Some((last, place)) = &self.last
            && *last == spot
        {
            return place.clone();
        }
        let place = self.look_up(spot.rank(), spot.address());
        self.last = Some((spot, place.clone()));
        place
    }

    /// What the way to an address in the heap is called.
    fn way(&mut self, way: &Way) -> Place {
        Place::Blocks {
            from: Box::new(self.place(way.root)),
            blocks: way.steps.iter().map(|step| self.block(*step)).collect(),
            is_longer: way.is_longer,
        }
    }

    /// What a block is called.
    fn block(&mut self, step: Step) -> Block {
        Block {
            bytes: step.bytes,
            class: self.class(step.table),
        }
    }

    /// The class of C++ whose objects have this table of virtual functions.
    fn class(&mut self, table: u64) -> Option<String> {
        let mut modules = self.survey.modules.iter();
        let module =
            modules.position(|module| module.data.iter().any(|data| data.contains(&table)))?;
        let value = table.wrapping_sub(self.survey.modules[module].base);
        let symbol = self.mangled(module, value, false)?;
        // `_ZTV` and the name of the type: as a variable of that name.
        let name = symbol.strip_prefix("_ZTV")?;
        Some(demangle(&format!("_Z{name}")))
    }

    fn look_up(&mut self, rank: Rank, address: u64) -> Place {
        match rank {
            Rank::Global => self.global(address),
            Rank::ThreadLocal => self.thread_local(address),
            Rank::Heap => Place::Heap,
            Rank::Mapping if self.survey.is_driver(address) => Place::Driver,
            Rank::Mapping => {
                let mut regions = self.survey.regions.iter();
                let region = regions.find(|region| region.addresses.contains(&address));
                Place::Mapping {
                    name: region.map_or_else(String::new, |region| region.name.clone()),
                }
            }
            Rank::Stack => {
                let mut labels = self.survey.labels.iter();
                let thread = labels.find_map(|(addresses, label)| match label {
                    Label::Stack(thread) if addresses.contains(&address) => Some(*thread),
                    _ => None,
                });
                Place::Stack {
                    thread: self.thread(thread.unwrap_or(0) as usize),
                }
            }
            Rank::Register => Place::Register {
                thread: self.thread(address as usize),
            },
        }
    }

    fn global(&mut self, address: u64) -> Place {
        let mut modules = self.survey.modules.iter();
        let Some(index) =
            modules.position(|module| module.data.iter().any(|data| data.contains(&address)))
        else {
            return Place::Heap;
        };
        let value = address.wrapping_sub(self.survey.modules[index].base);
        let symbol = self.symbol(index, value, false);
        Place::Global {
            module: self.module(index),
            symbol,
        }
    }

    fn thread_local(&mut self, address: u64) -> Place {
        let survey = self.survey;
        let mut blocks = survey.tls.iter().rev();
        let block = blocks.find(|(_, block)| block.addresses.contains(&address));
        let (thread, module, start) = block.map_or((0, None, address), |(thread, block)| {
            (*thread, block.module, block.addresses.start)
        });
        let symbol = module.and_then(|module| self.symbol(module, address - start, true));
        Place::ThreadLocal {
            thread: self.thread(thread),
            module: module.map(|module| self.module(module)),
            symbol,
        }
    }

    fn module(&mut self, index: usize) -> String {
        let module = &self.survey.modules[index];
        let name = self.modules.entry(index);
        name.or_insert_with(|| module.name()).clone()
    }

    fn thread(&mut self, index: usize) -> String {
        let name = self.threads.entry(index);
        name.or_insert_with(|| task::name(self.survey.threads[index].id))
            .clone()
    }

    /// The variable of a module that contains a value.
    fn symbol(&mut self, module: usize, value: u64, thread_local: bool) -> Option<String> {
        let symbol = self.mangled(module, value, thread_local);
        symbol.map(|symbol| demangle(&symbol))
    }

    fn mangled(&mut self, module: usize, value: u64, thread_local: bool) -> Option<String> {
        let path = &self.survey.modules[module].path;
        let symbols = self.symbols.entry(module);
        let symbols = symbols.or_insert_with(|| Variables::read(File::open(path).ok()?));
        symbols.as_ref()?.find(value, thread_local)
    }
}
