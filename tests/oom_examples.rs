//! The examples of the manual's chapter on memory: each ends well and prints its verdict, with the
//! right numbers and the right place. So do the examples on work in pieces and on the device heap.

use std::path::PathBuf;
use std::process::Command;

use crate::support::succeeded;

/// An example, as cargo (or the bundle) puts it beside the tests.
fn example(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("this program has a file");
    let folder = program.ancestors().nth(2).expect("two folders deep");
    let file = folder.join("examples").join(name);
    assert!(
        file.is_file(),
        "{} is not there: `cargo test` builds it, or `cargo build --examples`",
        file.display()
    );
    file
}

/// What an example prints. It runs on the simulated GPU, of 4 GiB, whatever this machine has: the
/// numbers are the same everywhere then. An example that leaks fails.
#[track_caller]
fn output(name: &str) -> String {
    run(name, "sim")
}

#[track_caller]
fn run(name: &str, driver: &str) -> String {
    let mut command = Command::new(example(name));
    command
        .env("CUGUARD_DRIVER", driver)
        .env_remove("CUGUARD_SIM")
        .env("LEAK_REPORT", "text,exitcode=23");
    let (out, _) = succeeded(&command.output().expect("it can be started"));
    out
}

/// Where an example has this text. The column is left out: it is the formatter's.
fn place(name: &str, text: &str) -> String {
    let source = match name {
        "oom_fragmented" => include_str!("../examples/oom_fragmented.rs"),
        "oom_hoarded_pool" => include_str!("../examples/oom_hoarded_pool.rs"),
        "oom_leak" => include_str!("../examples/oom_leak.rs"),
        "oom_other_process" => include_str!("../examples/oom_other_process.rs"),
        "oom_too_large" => include_str!("../examples/oom_too_large.rs"),
        _ => panic!("{name} is not an example"),
    };
    let mut lines = source.lines().zip(1..);
    let found = lines.find(|(line, _)| line.contains(text));
    let (_, number) = found.unwrap_or_else(|| panic!("{name} has {text:?}"));
    format!("examples/{name}.rs:{number}:")
}

/// Whether these are in the text, one after the other.
#[track_caller]
fn in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => panic!("{part:?} is not there, or not in its place:\n{text}"),
        }
    }
}

#[test]
fn fragmented() {
    let text = output("oom_fragmented");
    let asked = place("oom_fragmented", "match DeviceBuffer::<u8>::zeroed");
    let blocks = place(
        "oom_fragmented",
        "DeviceBuffer::<u8>::zeroed(&context, BLOCK)",
    );
    in_order(
        &text,
        &[
            "1024 blocks of 1 MiB\n512 of them are left, and 0 bytes are free\n",
            "DeviceBuffer::zeroed requested 256 MiB",
            &asked,
            "\nwhy: 512 MiB lie unused in 512 pages that small blocks keep\n",
            "512 MiB of small blocks keep 512 pages of 2 MiB, 1 GiB in all\n",
            &format!("512 pages: u8 at {blocks}"),
            "what helps:",
            "or in a Pool, which merges half-empty pages\n",
        ],
    );
    // The large block takes more, and is not to blame.
    assert!(!text.contains("\nand: "), "{text}");
}

#[test]
fn leak() {
    let text = output("oom_leak");
    let grows = place("oom_leak", "uninitialized(context, bytes)");
    let weights = place("oom_leak", "uninitialized(&context, bytes * 20)");
    in_order(
        &text,
        &[
            "step 30 failed\n",
            "DeviceBuffer::uninitialized requested 81.28 MiB",
            &grows,
            "\nwhy: the context's own data takes 3.89 GiB, and grows\n",
            // 27 steps: the checkpoint was made after the second.
            &format!("grew by 2.14 GiB since the baseline: u8, \"activations\" at {grows}"),
            "what helps:",
            "call sites that hold it in this context:",
            "2.30 GiB in 29 allocations",
            "+2.14 GiB since the baseline",
            "1.59 GiB in 1 allocation",
            &format!("\"weights\" at {weights}"),
        ],
    );
    let (verdict, _) = text.split_once("what helps:").expect("it was found above");
    assert!(!verdict.contains("weights"), "they do not grow:\n{text}");
}

#[test]
fn hoarded_pool() {
    let text = output("oom_hoarded_pool");
    let asked = place("oom_hoarded_pool", "match DeviceBuffer::<u8>::zeroed");
    let blocks = place("oom_hoarded_pool", "zeroed(&stream, BLOCK)");
    in_order(
        &text,
        &[
            "300 blocks of 3 MiB\n150 of them are left",
            "DeviceBuffer::zeroed requested 400 MiB",
            &asked,
            "\nwhy: memory pools have 478 MiB that they do not use\n",
            "the device's pool: 928 MiB reserved, 450 MiB in use\n",
            "what helps:",
            "call sites that hold it in this context:",
            "450 MiB in 150 allocations of stream-ordered memory",
            &blocks,
        ],
    );
    assert!(!text.contains("\nand: "), "{text}");
    // It was done, and was not enough.
    assert!(!text.contains("OomPolicy::trim(true)"), "{text}");
}

#[test]
fn other_process() {
    let text = output("oom_other_process");
    let asked = place("oom_other_process", "zeroed(&context, half)");
    in_order(
        &text,
        &[
            "DeviceBuffer::zeroed requested 2 GiB",
            &asked,
            "\nwhy: another process holds 3 GiB (pid 4711)\n",
            "3 GiB: pid 4711, python train.py\n",
            "what helps:",
        ],
    );
    assert!(!text.contains("\nand: "), "{text}");
    // There is one device alone.
    assert!(!text.contains("another device"), "{text}");
}

#[test]
fn too_large() {
    let text = output("oom_too_large");
    let asked = place("oom_too_large", "match DeviceBuffer::<u8>::zeroed");
    in_order(
        &text,
        &[
            "DeviceBuffer::zeroed requested 5 GiB",
            &asked,
            "\nwhy: larger than the device, which has 4 GiB\n",
            "what helps:",
            "cuguard::Chunked",
        ],
    );
    assert!(!text.contains("\nand: "), "{text}");
}

#[test]
fn chunked() {
    let text = output("chunked");
    // Two lanes with a piece and its scratch memory, half as much, take 48 MiB, then 24, then 12.
    in_order(
        &text,
        &[
            "256 MiB of values; the device has 96 MiB, of which 20 are free\n",
            " pieces, in the end of 4096 KiB; halved 2 times\n",
            "right: 67108864 of 67108864\nalive: 0 bytes\n",
        ],
    );
}

#[test]
fn device_heap() {
    let text = output("device_heap");
    in_order(
        &text,
        &[
            "by default: ",
            " got null\n    asked for 64 MiB (64 x 256 threads x 4096 bytes) of a heap of ",
            "too small: set DeviceHeap::limit",
            "with a larger heap: 16384 threads got 4096 bytes, 0 got null\n",
            "of a heap of 256 MiB",
        ],
    );
    assert_eq!(text.matches("too small").count(), 1, "{text}");
}
