//! The speed of the search: N GiB of host memory with 10^6 addresses, half of them held.
//!
//! ```text
//! cargo bench -p cuguard-audit --bench search [-- GIBIBYTES [ADDRESSES]]
//! ```
//!
//! The program starts itself again with the audit library preloaded, as a program under `cuguard run` has it. Prints
//! GiB/s and what each kind of memory costs. Of the memory one word in eight is an address of the host, as in a heap.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

const MASK: u64 = 0x5a5a_5a5a_5a5a_5a5a;
const FIRST: u64 = 0x7e00_0000_0000;
const SIZE: u64 = 4096;
const GIB: usize = 1 << 30;

type Search = extern "C" fn(*const u64, usize, u64, u32, *mut c_char, usize) -> c_int;

/// The library that cargo built: in the folder of this program, or its parent.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a file");
    let folders = program.ancestors().skip(1).take(2);
    let mut files = folders.map(|folder| folder.join("libcuguard_audit.so"));
    files
        .find(|file| file.is_file())
        .expect("libcuguard_audit.so is beside this program")
}

fn search() -> Search {
    // SAFETY: the name is terminated.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"cuguard_audit_search".as_ptr()) };
    if found.is_null() {
        let error = Command::new(std::env::current_exe().expect("this program has a file"))
            .args(std::env::args_os().skip(1))
            .env("LD_PRELOAD", library())
            .env("LEAK_REPORT", "0")
            .exec();
        panic!("cannot start this program again: {error}");
    }
    // SAFETY: the library's function has this type.
    unsafe { std::mem::transmute::<*mut c_void, Search>(found) }
}

fn main() {
    let search = search();
    // Cargo adds `--bench`.
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse().ok());
    let gibibytes: usize = numbers.next().unwrap_or(2);
    let count: usize = numbers.next().unwrap_or(1_000_000);

    let words = gibibytes * GIB / 8;
    let mut memory: Vec<u64> = Vec::with_capacity(words);
    let mut state = 1_u64;
    let base = memory.as_ptr().addr() as u64;
    for index in 0..words {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        memory.push(match index % 8 {
            0 => base + (state >> 40),
            1 | 2 => state,
            _ => state >> 44,
        });
    }
    let addresses = |index: usize| FIRST + index as u64 * SIZE;
    for index in (0..count).step_by(2) {
        memory[index * (words / count)] = addresses(index) + 8;
    }
    let masked: Vec<_> = (0..count)
        .flat_map(|index| [addresses(index) ^ MASK, SIZE])
        .collect();
    let mut text = vec![0_u8; count * 24 + 4096];
    for _ in 0..3 {
        let begun = Instant::now();
        let found = search(
            masked.as_ptr(),
            count,
            MASK,
            600,
            text.as_mut_ptr().cast(),
            text.len(),
        );
        let elapsed = begun.elapsed().as_secs_f64();
        let said = CStr::from_bytes_until_nul(&text)
            .expect("terminated")
            .to_string_lossy();
        let last = said.lines().last().unwrap_or("");
        let speed = gibibytes as f64 / elapsed;
        println!(
            "{gibibytes} GiB, {count} addresses, {found} found: {elapsed:.3} s, {speed:.2} GiB/s ({last})"
        );
        assert_eq!(found as usize, count.div_ceil(2));
    }
    drop(memory);
}
