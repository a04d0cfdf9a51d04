//! Runs random programs, and finds where two devices differ.

use std::fmt::Write as _;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::emit::{HEADER, kernel};
use super::inputs::{CELLS, RECORD, REGISTERS, SLOT, bytes};
use super::program::{Program, programs};
use crate::{Device, Grid};

/// How often a program that differs is simplified.
const SIMPLIFICATIONS: usize = 400;

/// Programs that are loaded together.
#[derive(Debug)]
pub struct Batch<T> {
    trees: Vec<T>,
    programs: Vec<Program>,
}

/// A program whose results differ.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Its index in the batch.
    pub index: usize,
    /// Where the results differ, and the program, simplified: PTX with comments.
    pub text: String,
}

/// Programs that could not be run on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Whether the device can run others.
    pub is_lasting: bool,
    /// What failed, and the program.
    pub text: String,
}

/// The module of one program.
#[must_use]
pub fn text(program: &Program) -> String {
    format!("{HEADER}{}", kernel(program, "k0"))
}

impl Batch<()> {
    /// As many programs. The same seed makes the same programs.
    #[must_use]
    pub fn new(seed: u64, count: usize) -> Batch<impl ValueTree<Value = Program>> {
        let mut bytes = [0x5a; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let strategy = programs();
        let trees: Vec<_> = (0..count)
            .filter_map(|_| strategy.new_tree(&mut runner).ok())
            .collect();
        let programs = trees.iter().map(ValueTree::current).collect();
        Batch { trees, programs }
    }
}

impl<T: ValueTree<Value = Program>> Batch<T> {
    /// The programs.
    #[must_use]
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// The module of all programs.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = HEADER.to_owned();
        for (index, program) in self.programs.iter().enumerate() {
            out.push_str(&kernel(program, &format!("k{index}")));
        }
        out
    }

    /// Runs all programs. Returns what each has written.
    ///
    /// # Errors
    ///
    /// A program could not be loaded or has failed.
    pub fn run(&self, device: &Device<'_>) -> Result<Vec<Vec<u8>>, Failure> {
        run(device, &self.programs, &self.text()).map_err(|all| {
            // Which one is it?
            for program in &self.programs {
                if let Err(own) = run(device, std::slice::from_ref(program), &text(program)) {
                    return own;
                }
            }
            all
        })
    }

    /// Runs all programs on both devices. Returns those whose results differ.
    ///
    /// # Errors
    ///
    /// A program could not be loaded or has failed.
    pub fn compare(
        &mut self,
        first: &Device<'_>,
        second: &Device<'_>,
    ) -> Result<Vec<Difference>, Failure> {
        let (one, two) = (self.run(first)?, self.run(second)?);
        let differing: Vec<usize> = (0..one.len())
            .filter(|index| one[*index] != two[*index])
            .collect();
        let mut found = Vec::new();
        for index in differing {
            let program = self.simplify(index, first, second);
            let text = describe(&program, first, second);
            found.push(Difference { index, text });
        }
        Ok(found)
    }

    /// The simplest program found that still differs.
    fn simplify(&mut self, index: usize, first: &Device<'_>, second: &Device<'_>) -> Program {
        let tree = &mut self.trees[index];
        let mut simplest = tree.current();
        let mut goes_on = tree.simplify();
        for _ in 0..SIMPLIFICATIONS {
            if !goes_on {
                break;
            }
            let program = tree.current();
            let one = run(first, std::slice::from_ref(&program), &text(&program));
            let two = run(second, std::slice::from_ref(&program), &text(&program));
            goes_on = match (one, two) {
                (Ok(one), Ok(two)) if one != two => {
                    simplest = program;
                    tree.simplify()
                }
                _ => tree.complicate(),
            };
        }
        simplest
    }
}

/// Loads a module and runs its kernels, one for each program.
fn run(device: &Device<'_>, programs: &[Program], text: &str) -> Result<Vec<Vec<u8>>, Failure> {
    let failure = |is_lasting| {
        move |error: String| Failure {
            is_lasting,
            text: format!("{error}\n{text}"),
        }
    };
    let module = device.load(text).map_err(failure(false))?;
    let mut addresses = Vec::new();
    let mut first = Ok(());
    for (index, program) in programs.iter().enumerate() {
        let function = module
            .function(&format!("k{index}"))
            .map_err(failure(false))?;
        let threads = (program.blocks * program.warps * 32) as usize;
        let address = device
            .upload(&bytes(program.seed, threads))
            .map_err(failure(true))?;
        let grid = Grid {
            blocks: [program.blocks, 1, 1],
            threads: [program.warps * 32, 1, 1],
            shared: 0,
            cooperative: false,
        };
        // SAFETY: each kernel takes the address of its records.
        first = first.and(unsafe { function.launch(&grid, &mut [address.to_le_bytes().to_vec()]) });
        addresses.push((address, threads * RECORD + CELLS));
    }
    first.map_err(failure(true))?;
    let mut results = Vec::new();
    for (address, len) in addresses {
        results.push(device.read(address, len).map_err(failure(true))?);
        device.free(address).map_err(failure(true))?;
    }
    Ok(results)
}

/// What of the results differs, and the program.
fn describe(program: &Program, first: &Device<'_>, second: &Device<'_>) -> String {
    let results =
        [first, second].map(|device| run(device, std::slice::from_ref(program), &text(program)));
    let mut out = String::new();
    if let [Ok(one), Ok(two)] = &results {
        let (one, two) = (&one[0], &two[0]);
        let threads = (program.blocks * program.warps * 32) as usize;
        let start = bytes(program.seed, threads);
        let mut shown = 0;
        let words = (0..one.len() / 2).map(|own| own * 2);
        for at in words.filter(|at| one[*at..at + 2] != two[*at..at + 2]) {
            shown += 1;
            if shown > 16 {
                break;
            }
            let (thread, offset) = (at / RECORD, at % RECORD);
            let (name, size) = place(offset, thread >= threads);
            let from = at - at % size;
            let hex = |of: &[u8]| {
                of[from..from + size]
                    .iter()
                    .rev()
                    .map(|own| format!("{own:02x}"))
                    .collect::<String>()
            };
            let _ = writeln!(
                out,
                "// thread {thread} {name}: {} and {}, began with {}",
                hex(one),
                hex(two),
                hex(&start)
            );
        }
        // What the registers of the first thread that differs began with.
        if let Some(at) = (0..one.len()).find(|at| one[*at] != two[*at]) {
            let base = at / RECORD * RECORD;
            for (name, at) in REGISTERS
                .iter()
                .flat_map(|own| own.places())
                .filter(|_| base < threads * RECORD)
            {
                let from = base + at.offset;
                let value = start[from..from + at.bits / 8]
                    .iter()
                    .rev()
                    .map(|own| format!("{own:02x}"));
                let _ = writeln!(out, "// {name} = {}", value.collect::<String>());
            }
        }
    }
    let _ = writeln!(
        out,
        "// {} blocks, {} warps, seed {:#x}",
        program.blocks, program.warps, program.seed
    );
    let _ = writeln!(out, "// {:?}", program.body);
    out + &text(program)
}

/// The register or memory at an offset of a record, and its size.
pub(super) fn place(offset: usize, is_cell: bool) -> (String, usize) {
    if is_cell {
        return (format!("cell {}", offset / 4 * 4), 4);
    }
    for (name, at) in REGISTERS.iter().flat_map(|own| own.places()) {
        if (at.offset..at.offset + at.bits / 8).contains(&offset) {
            return (name, at.bits / 8);
        }
    }
    let name = match offset {
        144..148 => "predicates".to_owned(),
        _ => format!(
            "{} memory {}",
            ["global", "shared", "local"][(offset.max(SLOT) - SLOT) / 64],
            offset % 64 / 4 * 4
        ),
    };
    (name, 4)
}
