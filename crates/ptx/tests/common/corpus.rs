//! The kernels of `crates/kernels/corpus`.

use cuguard_ptx::{Launch, Module};

use super::Argument::{self, U64};
use super::{Device, Plain, launch};

pub const ALGORITHMS: &str = include_str!("../../../kernels/corpus/algorithms.ptx");
pub const LANGUAGE: &str = include_str!("../../../kernels/corpus/language.ptx");
pub const GROUPS: &str = include_str!("../../../kernels/corpus/groups.ptx");
pub const NUMBERS: &str = include_str!("../../../kernels/corpus/numbers.ptx");

/// Numbers that look random.
pub fn noise(count: usize) -> Vec<u32> {
    (0..count as u32)
        .map(|own| own.wrapping_mul(2_654_435_761).rotate_left(own % 32) ^ own)
        .collect()
}

pub fn run(text: &str, launch: &Launch<'_>, device: &Device, arguments: &[Argument]) {
    let module = Module::new(text).unwrap_or_else(|errors| panic!("{errors}"));
    device
        .run(&module, launch, arguments)
        .unwrap_or_else(|error| panic!("{error}"));
}

/// Launches one block whose threads read an array and write to one that has `per_thread` values for each.
pub fn map<A: Plain, D: Plain>(
    text: &str,
    kernel: &str,
    from: &[A],
    zero: D,
    per_thread: usize,
) -> Vec<D> {
    let device = Device::new();
    let (at, to) = (
        device.upload(from),
        device.upload(&vec![zero; from.len() * per_thread]),
    );
    run(
        text,
        &launch(kernel, 1, from.len() as u32),
        &device,
        &[U64(at), U64(to)],
    );
    device.read(to, from.len() * per_thread)
}
