//! Runs a program of a file again, and compares with the values that another device has written.

use super::inputs::{CELLS, PREDICATES, RECORD, SLOT, bytes};
use super::run::place;
use crate::{Device, Grid};

/// A value of the file.
#[derive(Debug)]
struct Value<'a> {
    thread: usize,
    name: &'a str,
    /// What the second device wrote.
    bits: u64,
}

/// Runs the program of a file that [`Batch::compare`](super::Batch::compare) made. Returns the values that are not as on the
/// second device of the comparison, a line each.
///
/// # Errors
///
/// The text is not that of a difference, or the program could not be run.
pub fn replay(text: &str, device: &Device<'_>) -> Result<Vec<String>, String> {
    let values: Vec<Value<'_>> = text
        .lines()
        .filter_map(|line| line.strip_prefix("// thread "))
        .map(|line| value(line).ok_or(format!("not a value: {line}")))
        .collect::<Result<_, _>>()?;
    let extents = text
        .lines()
        .find_map(extents)
        .ok_or("no line with the number of blocks and warps")?;
    let (blocks, warps, seed) = extents;
    if values.is_empty() {
        return Err("no values to compare with".to_owned());
    }
    let threads = (blocks * warps * 32) as usize;
    let start = bytes(seed, threads);
    let function = device.load(text)?;
    let function = function.function("k0")?;
    let address = device.upload(&start)?;
    let grid = Grid {
        blocks: [blocks, 1, 1],
        threads: [warps * 32, 1, 1],
        shared: 0,
        cooperative: false,
    };
    // SAFETY: the kernel takes the address of its records.
    unsafe { function.launch(&grid, &mut [address.to_le_bytes().to_vec()]) }?;
    let found = device.read(address, threads * RECORD + CELLS)?;
    device.free(address)?;
    let mut differing = Vec::new();
    for value in values {
        // A record has nothing between the predicates and its memory.
        let (offset, size) = (0..PREDICATES + 4)
            .chain(SLOT..RECORD)
            .find_map(|offset| {
                let (name, size) = place(offset, value.thread >= threads);
                (name == value.name).then_some((offset, size))
            })
            .ok_or(format!("no such place: {}", value.name))?;
        let at = value.thread * RECORD + offset;
        let mut own = [0; 8];
        own[..size].copy_from_slice(&found[at..at + size]);
        let own = u64::from_le_bytes(own);
        if own != value.bits {
            let (thread, name, bits) = (value.thread, value.name, value.bits);
            differing.push(format!(
                "thread {thread} {name}: {own:x}, expected {bits:x}"
            ));
        }
    }
    differing.dedup();
    Ok(differing)
}

/// `THREAD NAME: FIRST and SECOND, began with START`.
fn value(line: &str) -> Option<Value<'_>> {
    let (thread, rest) = line.split_once(' ')?;
    let (name, rest) = rest.split_once(": ")?;
    let (_, rest) = rest.split_once(" and ")?;
    let (second, _) = rest.split_once(',')?;
    Some(Value {
        thread: thread.parse().ok()?,
        name,
        bits: u64::from_str_radix(second, 16).ok()?,
    })
}

/// `// N blocks, N warps, seed 0xN`.
fn extents(line: &str) -> Option<(u32, u32, u64)> {
    let (blocks, rest) = line.strip_prefix("// ")?.split_once(" blocks, ")?;
    let (warps, seed) = rest.split_once(" warps, seed 0x")?;
    Some((
        blocks.parse().ok()?,
        warps.parse().ok()?,
        u64::from_str_radix(seed, 16).ok()?,
    ))
}
