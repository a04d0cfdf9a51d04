//! Names for what was found: variables from the symbol tables of the files, threads, mappings.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::layout::Label;
use super::place::Place;
use super::scan::Rank;
use super::survey::Survey;
use super::task;

/// Looks names up, each table once.
pub(super) struct Names<'a> {
    survey: &'a Survey,
    symbols: HashMap<usize, Option<Symbols>>,
    modules: HashMap<usize, String>,
    threads: HashMap<usize, String>,
    /// All blocks of a managed list have the place of the first.
    last: Option<(Rank, u64, Place)>,
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

    /// The place of a rank at an address.
    pub(super) fn place(&mut self, rank: Rank, address: u64) -> Place {
        if let Some((last_rank, last_address, place)) = &self.last
            && (*last_rank, *last_address) == (rank, address)
        {
            return place.clone();
        }
        let place = self.look_up(rank, address);
        self.last = Some((rank, address, place.clone()));
        place
    }

    fn look_up(&mut self, rank: Rank, address: u64) -> Place {
        match rank {
            Rank::Global => self.global(address),
            Rank::ThreadLocal => self.thread_local(address),
            Rank::Heap => Place::Heap,
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
        let path = &self.survey.modules[module].path;
        let symbols = self.symbols.entry(module);
        let symbols = symbols.or_insert_with(|| Symbols::read(path));
        symbols.as_ref()?.find(value, thread_local)
    }
}

/// The variables of a file.
struct Symbols {
    file: File,
    /// Where the names are in the file.
    names: u64,
    /// Sorted by value, thread-local ones behind the others.
    variables: Vec<Variable>,
}

struct Variable {
    thread_local: bool,
    value: u64,
    size: u64,
    name: u32,
}

/// Larger tables are not read.
const TABLE_LIMIT: u64 = 512 << 20;
const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const STT_OBJECT: u8 = 1;
const STT_TLS: u8 = 6;

/// An integer of a structure in a file.
fn number<const SIZE: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut value = [0; 8];
    value[..SIZE].copy_from_slice(bytes.get(at..at + SIZE)?);
    Some(u64::from_le_bytes(value))
}

impl Symbols {
    fn read(path: &str) -> Option<Symbols> {
        let file = File::open(path).ok()?;
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0).ok()?;
        if header[..6] != *b"\x7fELF\x02\x01" {
            return None;
        }
        let (at, size, count) = (
            number::<8>(&header, 40)?,
            number::<2>(&header, 58)? as usize,
            number::<2>(&header, 60)? as usize,
        );
        if size < 64 {
            return None;
        }
        let mut sections = vec![0; size * count];
        file.read_exact_at(&mut sections, at).ok()?;
        let sections: Vec<_> = sections.chunks_exact(size).collect();
        let of_kind = |kind| {
            let mut sections = sections.iter();
            sections.find(|section| number::<4>(section, 4) == Some(u64::from(kind)))
        };
        // With static variables where the file has them.
        let table = of_kind(SHT_SYMTAB).or_else(|| of_kind(SHT_DYNSYM))?;
        let strings = sections.get(number::<4>(table, 40)? as usize)?;
        let length = number::<8>(table, 32)?;
        if length > TABLE_LIMIT {
            return None;
        }
        let mut symbols = vec![0; length as usize];
        file.read_exact_at(&mut symbols, number::<8>(table, 24)?)
            .ok()?;
        let mut variables: Vec<_> = symbols
            .chunks_exact(24)
            .filter_map(Variable::read)
            .collect();
        variables.sort_by_key(|variable| (variable.thread_local, variable.value, variable.size));
        Some(Symbols {
            names: number::<8>(strings, 24)?,
            variables,
            file,
        })
    }

    fn find(&self, value: u64, thread_local: bool) -> Option<String> {
        let behind = self.variables.partition_point(|variable| {
            (variable.thread_local, variable.value) <= (thread_local, value)
        });
        let variable = self.variables.get(behind.checked_sub(1)?)?;
        let offset = value.checked_sub(variable.value)?;
        if variable.thread_local != thread_local || offset >= variable.size.max(8) {
            return None;
        }
        let mut name = vec![0; 1024];
        let read = self
            .file
            .read_at(&mut name, self.names + u64::from(variable.name));
        name.truncate(read.ok()?);
        let length = name.iter().position(|byte| *byte == 0)?;
        let name = String::from_utf8_lossy(&name[..length]);
        Some(readable(&name))
    }
}

/// The name as the program's source has it: of Rust without the hash at its end, or of C++.
fn readable(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let symbol = name
        .starts_with("_Z")
        .then(|| cpp_demangle::Symbol::new(name));
    match symbol {
        Some(Ok(symbol)) => symbol.demangle().unwrap_or_else(|_| name.to_owned()),
        _ => name.to_owned(),
    }
}

impl Variable {
    fn read(entry: &[u8]) -> Option<Variable> {
        let kind = entry[4] & 15;
        let is_defined = number::<2>(entry, 6)? != 0;
        if !is_defined || (kind != STT_OBJECT && kind != STT_TLS) {
            return None;
        }
        Some(Variable {
            thread_local: kind == STT_TLS,
            value: number::<8>(entry, 8)?,
            size: number::<8>(entry, 16)?,
            name: number::<4>(entry, 0)? as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn names_of_variables() {
        for (name, expected) in [
            ("cache", "cache"),
            ("_ZN5model5cacheE", "model::cache"),
            ("_ZZ4mainE5cache", "main::cache"),
            ("_ZN4test5CACHE17h0123456789abcdefE", "test::CACHE"),
            ("_Znonsense", "_Znonsense"),
        ] {
            assert_eq!(readable(name), expected);
        }
    }
}
