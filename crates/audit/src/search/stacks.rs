//! Where a thread's stack and thread-local storage are, from the C library's own structures.

use std::ops::Range;

use super::maps::Region;
use super::memory::Memory;
use super::modules::Module;
use super::workers;

/// Bytes that functions may use below the stack pointer.
pub(super) const RED_ZONE: u64 = if cfg!(target_arch = "x86_64") { 128 } else { 0 };

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

/// The addresses of a thread's own structure, as far as they may hold values of the program, as those of
/// `pthread_setspecific`; and the address of its table of blocks.
#[cfg(target_arch = "x86_64")]
fn control_block(memory: &Memory, pointer: u64) -> Option<(Range<u64>, u64)> {
    /// Bytes of `struct pthread`.
    const STRUCTURE: u64 = 2304;
    // The structure begins with its own address, which the table's follows.
    let [own, table] = memory.words::<2>(pointer)?;
    (own == pointer).then_some((pointer..pointer + STRUCTURE, table))
}

/// The addresses of a thread's own structure, which may hold values of the program, as those of `pthread_setspecific`; and the
/// address of its table of blocks.
#[cfg(target_arch = "aarch64")]
fn control_block(memory: &Memory, pointer: u64) -> Option<(Range<u64>, u64)> {
    // The thread pointer leads to the table's address, behind the structure. The distance is the same for all threads.
    let thread_pointer: u64;
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) thread_pointer, options(nomem, nostack, preserves_flags));
    }
    // SAFETY: no requirements.
    let length = thread_pointer.checked_sub(unsafe { libc::pthread_self() })?;
    let behind = pointer.checked_add(length)?;
    let [table] = memory.words::<1>(behind)?;
    Some((pointer..behind, table))
}

/// The thread-local storage of a thread.
pub(super) fn tls_of(memory: &Memory, pointer: u64, modules: &[Module]) -> Vec<TlsBlock> {
    let mut blocks = Vec::new();
    let Some((own, table)) = control_block(memory, pointer) else {
        return blocks;
    };
    blocks.push(TlsBlock {
        module: None,
        addresses: own,
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
    for pair in regions.windows(2) {
        let (guard, region) = (&pair[0], &pair[1]);
        let is_guarded = !guard.writable && guard.addresses.end == region.addresses.start;
        if !is_guarded || !region.is_anonymous() || !region.writable {
            continue;
        }
        let start = region.addresses.end.saturating_sub(AT_END);
        let start = start.max(region.addresses.start);
        let mut words = vec![0_u64; ((region.addresses.end - start) / 8) as usize];
        let read = memory.read(start, super::memory::bytes_of(&mut words)) / 8;
        let stack = guard.addresses.start..region.addresses.end;
        if let Some(pointer) = structure(&words[..read], start, &stack)
            && !live.contains(&pointer)
            && let Some(stack) = stack_of(memory, pointer)
        {
            dead.push(stack);
        }
    }
    dead
}

/// How much of a stack's end is looked at for `struct pthread`.
#[cfg(target_arch = "x86_64")]
const AT_END: u64 = 4096;
/// How much of a stack's end is looked at for `struct pthread`, which the thread-local variables of the program and its libraries
/// follow.
#[cfg(target_arch = "aarch64")]
const AT_END: u64 = 64 << 10;

/// The address of `struct pthread` in the words at the end of a stack. It lies at the end, aligned to 64 bytes, and begins with its
/// own address.
#[cfg(target_arch = "x86_64")]
fn structure(words: &[u64], start: u64, _: &Range<u64>) -> Option<u64> {
    let mut places = (0..words.len().saturating_sub(2)).step_by(8).rev();
    let address = |at: usize| start + 8 * at as u64;
    let found = places.find(|&at| words[at] == address(at) && words[at + 2] == address(at));
    found.map(address)
}

/// The address of `struct pthread` in the words at the end of a stack: the structure has the stack's address and size.
#[cfg(target_arch = "aarch64")]
fn structure(words: &[u64], start: u64, stack: &Range<u64>) -> Option<u64> {
    let field = workers::stack_field()?;
    let pair = [stack.start, stack.end - stack.start];
    let found = words.windows(2).rposition(|words| words == pair)?;
    (start + 8 * found as u64).checked_sub(field)
}
