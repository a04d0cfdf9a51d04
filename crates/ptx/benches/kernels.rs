//! Thread-instructions per second on one core: `cargo bench -p cuguard-ptx --bench kernels [FILTER]`. The time is that on
//! the processor, so that other programs matter little.

use std::time::{Duration, Instant};

use common::Argument::{F32, U32, U64};
use common::{Argument, Device, launch};
use cuguard_ptx::{Launch, Module};

#[path = "../tests/common/mod.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod common;

fn main() {
    let filter: Vec<String> = std::env::args()
        .skip(1)
        .filter(|own| !own.starts_with('-'))
        .collect();
    let wanted = |name: &str| filter.is_empty() || filter.iter().any(|own| name.contains(&**own));
    println!(
        "{:<12} {:>12} {:>10} {:>14}",
        "kernel", "instructions", "seconds", "million/s"
    );
    for (name, bench) in BENCHES {
        if wanted(name) {
            bench(name);
        }
    }
}

/// Measures a kernel, whose name is given.
type Bench = fn(&str);

const BENCHES: [(&str, Bench); 4] = [
    ("saxpy", saxpy),
    ("product", product),
    ("reduction", reduction),
    ("histogram", histogram),
];

const KERNELS: &str = include_str!("kernels.ptx");

/// Seconds that this thread has been on a processor.
fn on_processor() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds: u64 = text.split(' ').next().unwrap().parse().unwrap();
    nanoseconds as f64 / 1e9
}

/// Repeats a launch for a second, and prints the rate of the fastest.
fn measure(name: &str, device: &Device, launch: &Launch<'_>, arguments: &[Argument]) {
    let module = Module::new(KERNELS).unwrap_or_else(|errors| panic!("{errors}"));
    let (mut best, mut instructions) = (f64::INFINITY, 0);
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        let start = on_processor();
        let statistics = device.run(&module, launch, arguments).unwrap();
        best = best.min(on_processor() - start);
        instructions = statistics.thread_instructions;
    }
    let rate = instructions as f64 / best / 1e6;
    println!("{name:<12} {instructions:>12} {best:>10.4} {rate:>14.0}");
}

fn saxpy(name: &str) {
    let device = Device::new();
    let count = 1 << 20;
    let (x, y) = (
        device.upload(&vec![1f32; count]),
        device.upload(&vec![2f32; count]),
    );
    let arguments = [F32(0.5), U64(x), U64(y), U64(count as u64)];
    measure(name, &device, &launch("saxpy", 128, 256), &arguments);
}

fn product(name: &str) {
    let device = Device::new();
    let side = 256;
    let [a, b, c] = [1f32, 2.0, 0.0].map(|value| device.upload(&vec![value; side * side]));
    let blocks = side as u32 / 16;
    let launch = Launch {
        grid: [blocks, blocks, 1],
        block: [16, 16, 1],
        ..launch("product", 1, 1)
    };
    measure(
        name,
        &device,
        &launch,
        &[U64(a), U64(b), U64(c), U32(side as u32)],
    );
}

fn reduction(name: &str) {
    let device = Device::new();
    let count = 1 << 20;
    let words = device.upload(&vec![3u32; count]);
    let sum = device.upload(&[0u32]);
    let arguments = [U64(words), U64(sum), U32(count as u32)];
    measure(name, &device, &launch("reduction", 128, 256), &arguments);
}

fn histogram(name: &str) {
    let device = Device::new();
    let count = 1 << 20;
    let bytes: Vec<u8> = (0..count as u32)
        .map(|own| (own.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let (bytes, bins) = (device.upload(&bytes), device.upload(&[0u32; 256]));
    let arguments = [U64(bytes), U64(bins), U32(count as u32)];
    measure(name, &device, &launch("histogram", 64, 256), &arguments);
}
