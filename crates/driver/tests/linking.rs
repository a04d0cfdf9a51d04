//! A program with this crate does not need libcuda, and neither exports nor imports a driver function
//! dynamically. Read from this test program's own file.
//!
//! Other linkers, profiles and kinds of output: `scripts/check-linking.sh`.

use std::collections::BTreeSet;

use cuguard_driver as _;

/// The parts of a 64-bit little-endian ELF file that the dynamic linker reads.
struct Elf {
    bytes: Vec<u8>,
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const SYMBOL_SIZE: usize = 24;

impl Elf {
    fn of_this_program() -> Self {
        let file = std::env::current_exe().expect("this program has a file");
        let bytes = std::fs::read(file).expect("the file can be read");
        assert_eq!(&bytes[..6], b"\x7fELF\x02\x01", "64 bits, little endian");
        Self { bytes }
    }

    fn number<const N: usize>(&self, at: usize) -> usize {
        let mut number = [0; 8];
        number[..N].copy_from_slice(&self.bytes[at..at + N]);
        usize::try_from(u64::from_le_bytes(number)).expect("64 bits")
    }

    /// Type, file offset, address and file size of each segment.
    fn segments(&self) -> Vec<(u32, usize, usize, usize)> {
        let (table, size, count) = (
            self.number::<8>(0x20),
            self.number::<2>(0x36),
            self.number::<2>(0x38),
        );
        (0..count)
            .map(|index| table + index * size)
            .map(|at| {
                let kind = u32::try_from(self.number::<4>(at)).expect("32 bits");
                let [place, address, size] = [0x08, 0x10, 0x20].map(|o| self.number::<8>(at + o));
                (kind, place, address, size)
            })
            .collect()
    }

    /// The file offset of the byte that is loaded to `address`.
    fn place(&self, address: usize) -> usize {
        self.segments()
            .into_iter()
            .find(|(kind, _, start, size)| {
                *kind == PT_LOAD && (*start..start + size).contains(&address)
            })
            .map(|(_, place, start, _)| place + address - start)
            .expect("the address lies in a segment")
    }

    /// The dynamic section: pairs of a tag and a value.
    fn dynamic(&self) -> Vec<(u64, usize)> {
        let (_, place, _, size) = self
            .segments()
            .into_iter()
            .find(|(kind, ..)| *kind == PT_DYNAMIC)
            .expect("a test program is linked dynamically");
        (place..place + size)
            .step_by(16)
            .map(|at| (self.number::<8>(at) as u64, self.number::<8>(at + 8)))
            .take_while(|(tag, _)| *tag != 0)
            .collect()
    }

    /// The only value of a tag, as a file offset.
    fn table(&self, tag: u64) -> usize {
        let entries = self.dynamic();
        let entry = entries.iter().find(|(found, _)| *found == tag);
        self.place(entry.expect("every dynamic program has it").1)
    }

    fn string(&self, at: usize) -> String {
        let from = self.table(DT_STRTAB) + at;
        let length = self.bytes[from..].iter().position(|byte| *byte == 0);
        let bytes = &self.bytes[from..from + length.expect("a string ends")];
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// The libraries that the dynamic linker must find before the program starts.
    fn needed(&self) -> Vec<String> {
        let entries = self.dynamic();
        let needed = entries.iter().filter(|(tag, _)| *tag == DT_NEEDED);
        needed.map(|(_, name)| self.string(*name)).collect()
    }

    /// The names of the dynamic symbols, exported or imported.
    fn dynamic_symbols(&self) -> BTreeSet<String> {
        // The table's length is not stored. It lies before the strings, as linkers lay it out.
        let (symbols, strings) = (self.table(DT_SYMTAB), self.table(DT_STRTAB));
        assert!(symbols < strings, "symbols lie before their names");
        (symbols..strings)
            .step_by(SYMBOL_SIZE)
            .map(|at| self.number::<4>(at))
            // After the last symbol other tables may follow; what is not a name is skipped.
            .filter(|name| strings + name < self.bytes.len())
            .map(|name| self.string(name))
            .collect()
    }
}

#[test]
fn this_program_does_not_need_libcuda() {
    // So that `cust_raw` and its `-lcuda` are part of this program.
    std::hint::black_box(cust_raw::cuMemAlloc_v2 as *const ());
    let needed = Elf::of_this_program().needed();
    assert!(
        needed.iter().any(|name| name.starts_with("libc.so")),
        "the file was misread: {needed:?}"
    );
    assert!(
        !needed.iter().any(|name| name.starts_with("libcuda")),
        "{needed:?}"
    );
}

#[test]
fn driver_functions_are_not_among_the_dynamic_symbols() {
    let symbols = Elf::of_this_program().dynamic_symbols();
    assert!(
        symbols
            .iter()
            .any(|name| name == "dlopen" || name == "malloc"),
        "the file was misread: {symbols:?}"
    );
    for name in cuguard_driver::sys::NAMES {
        assert!(!symbols.contains(name), "{name} can be seen by others");
    }
}
