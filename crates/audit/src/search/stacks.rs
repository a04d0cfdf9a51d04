//! Where a thread's stack and thread-local storage are, from the C library's own structures.

use std::ops::Range;

use super::maps::Region;
use super::memory::Memory;
use super::modules::Module;
use super::workers;

/// What functions may use below the stack pointer.
pub(super) const RED_ZONE: u64 = 128;
/// Bytes of `struct pthread` that may hold values of the program, as those of `pthread_setspecific`.
const STRUCTURE: u64 = 2304;

/// The memory that the C library allocated, or was given, as the stack of a thread.
pub(super) fn stack_of(memory: &Memory, pointer: u64) -> Option<Range<u64>> {
    let field = workers::stack_field()?;
    let [start, size] = memory.words::<2>(pointer.checked_add(field)?)?;
    let end = start.checked_add(size)?;
    // The structure itself lies at the stack's end. It does not for the main thread.
    (start != 0 && (start..end).contains(&pointer)).then_some(start..end)
}

/// A block of thread-local variables, with the number of the module; without one: the thread's own structure.
pub(super) struct TlsBlock {
    pub(super) module: Option<usize>,
    pub(super) addresses: Range<u64>,
}

/// The thread-local storage of a thread.
pub(super) fn tls_of(memory: &Memory, pointer: u64, modules: &[Module]) -> Vec<TlsBlock> {
    let mut blocks = Vec::new();
    if !cfg!(target_arch = "x86_64") {
        return blocks;
    }
    // The thread control block: its own address, and the table of TLS blocks.
    let Some([own, table]) = memory.words::<2>(pointer) else {
        return blocks;
    };
    if own != pointer {
        return blocks;
    }
    blocks.push(TlsBlock {
        module: None,
        addresses: pointer..pointer + STRUCTURE,
    });
    // Entries of two words; the one in front of the table has its length.
    let Some([count]) = memory.words::<1>(table.wrapping_sub(16)) else {
        return blocks;
    };
    for (index, module) in modules.iter().enumerate() {
        if module.tls_module == 0 || module.tls_module > count {
            continue;
        }
        let entry = memory.words::<1>(table + 16 * module.tls_module);
        let Some([block]) = entry.filter(|[block]| *block != 0 && *block != u64::MAX) else {
            continue;
        };
        blocks.push(TlsBlock {
            module: Some(index),
            addresses: block..block.saturating_add(module.tls_size),
        });
    }
    blocks
}

/// Stacks of threads that ended, which the C library keeps for new ones: what is in them is dead. `live` are the
/// `pthread_self()` of all threads.
pub(super) fn dead_stacks(memory: &Memory, regions: &[Region], live: &[u64]) -> Vec<Range<u64>> {
    let mut dead = Vec::new();
    if !cfg!(target_arch = "x86_64") {
        return dead;
    }
    for pair in regions.windows(2) {
        let (guard, region) = (&pair[0], &pair[1]);
        let is_guarded = !guard.writable && guard.addresses.end == region.addresses.start;
        if !is_guarded || !region.is_anonymous() || !region.writable {
            continue;
        }
        // `struct pthread` lies at the end, aligned to 64 bytes, and begins with its own address.
        let mut words = [0_u64; 512];
        let start = region.addresses.end - size_of_val(&words) as u64;
        if start < region.addresses.start {
            continue;
        }
        let read = memory.read(start, super::memory::bytes_of(&mut words)) / 8;
        for at in (0..read.saturating_sub(2)).step_by(8).rev() {
            let pointer = start + 8 * at as u64;
            if words[at] != pointer || words[at + 2] != pointer {
                continue;
            }
            if !live.contains(&pointer)
                && let Some(stack) = stack_of(memory, pointer)
            {
                dead.push(stack);
            }
            break;
        }
    }
    dead
}
