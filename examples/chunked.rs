//! Work on more data than the device has memory for, piece by piece.
//!
//!     cargo run --example chunked
//!
//! What to see: 256 MiB go through a simulated device of 96 MiB of which another process holds 44
//! (a real GPU is used as it is). The pieces begin at 16 MiB; where two of them and their scratch
//! memory do not fit they are halved, and the same values are done again. In the end all of them
//! are right, and nothing is alive.

use cuguard::driver::{DriverKind, load};
use cuguard::sim::{self, Config, OtherProcess};
use cuguard::{Chunked, Context, DeviceBuffer, Result};

const MIB: usize = 1 << 20;

fn main() -> Result<()> {
    if load()?.kind() == DriverKind::Simulated {
        sim::configure(Config::new().memory(96 << 20)).expect("before the first context");
        let other = OtherProcess::new(4711, "trainer", 44 << 20);
        sim::set_other_processes(0, [other]).expect("the device is larger");
    }
    let context = Context::new(0)?;
    let mut values: Vec<u32> = (0..64 * MIB as u32).collect();
    println!(
        "{} MiB of values; the device has {} MiB, of which {} are free",
        values.len() * 4 / MIB,
        context.memory()?.total >> 20,
        context.memory()?.free >> 20,
    );

    // The two halves of each piece are swapped. A kernel would be launched in the same place.
    let summary = Chunked::new(&context)
        .piece_bytes(16 * MIB)
        .with(|len| DeviceBuffer::<u32>::zeroed(&context, len / 2))
        .update(&mut values, |s, piece| {
            let half = piece.data.len() / 2;
            let mut scratch = s.bind_mut(piece.extra)?.slice(..half)?;
            let (mut front, mut back) = piece.data.split_at(half)?;
            s.copy(&mut scratch, &front)?;
            s.copy(&mut front, &back)?;
            s.copy(&mut back, &scratch)
        })?;

    println!(
        "{} pieces, in the end of {} KiB; halved {} times",
        summary.pieces,
        summary.piece_len * 4 / 1024,
        summary.halved
    );
    // However the values were cut, each is one half of a piece away from its place.
    let moved = |(place, value): (usize, &u32)| place.abs_diff(*value as usize);
    let halves = [1, 2, 4, 8].map(|part| 2 * MIB / part);
    let right = values.iter().enumerate().map(moved);
    let right = right.filter(|by| halves.contains(by)).count();
    println!("right: {right} of {}", values.len());
    assert_eq!(right, values.len());
    println!("alive: {} bytes", context.live_bytes());
    context.close()
}
