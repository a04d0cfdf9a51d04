//! Texts that are broken at random: the parser and the decoder fail or succeed, and so do their kernels, but none
//! panics.

use cuguard_ptx::{Launch, Module};

use crate::common::{Device, launch};

const TEXTS: [&str; 5] = [
    include_str!("../../kernels/corpus/language.ptx"),
    include_str!("../../kernels/corpus/groups.ptx"),
    include_str!("../../kernels/corpus/algorithms.ptx"),
    include_str!("../../../kernels/launches.ptx"),
    include_str!("../../../kernels/heap.ptx"),
];

/// Pieces of text that make other programs of a program.
const PIECES: [&str; 16] = [
    "%r1",
    "%rd2",
    "%f3",
    "%p1",
    "4294967296",
    "-1",
    "0f7F800000",
    ".v4",
    ".u64",
    ".shared",
    "{",
    "}",
    "[",
    "ret;",
    "_",
    "|",
];

fn random(state: &mut u64) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

/// Executes all kernels for a while. What they compute is of no interest.
fn execute(module: &Module) {
    let device = Device::new();
    let data = device.upload(&[0u32; 1024]);
    for kernel in module.kernels() {
        let end = kernel
            .parameters
            .iter()
            .map(|(offset, size)| offset + size)
            .max();
        let words = vec![data; end.unwrap_or(0).div_ceil(8)];
        let arguments: Vec<u8> = words.iter().flat_map(|own| own.to_le_bytes()).collect();
        let variables = device.load(module);
        let launch = Launch {
            arguments: &arguments,
            variables: &variables,
            max_steps: 500,
            ..launch(kernel.name, 2, 40)
        };
        let _ = module.launch(&launch, &device, &device);
    }
}

#[test]
fn broken_texts_do_not_panic() {
    let mut state = 1;
    let mut loaded = 0;
    for round in 0..2000 {
        let text = TEXTS[round % TEXTS.len()];
        let lines: Vec<&str> = text.lines().collect();
        // A window of lines keeps the rounds short.
        let start = random(&mut state) % lines.len();
        let end = (start + random(&mut state) % 200).min(lines.len());
        let header = ".version 8.0\n.target sm_90\n.address_size 64\n";
        let mut own = format!("{header}{}", lines[..3.min(start)].join("\n"));
        own = if round % 3 == 0 {
            format!("{}\n", text)
        } else {
            format!("{own}\n{}", lines[start..end].join("\n"))
        };
        for _ in 0..random(&mut state) % 4 {
            let words: Vec<(usize, &str)> = own.match_indices([' ', '\t', ',', '\n']).collect();
            let (at, _) = words[random(&mut state) % words.len()];
            let piece = PIECES[random(&mut state) % PIECES.len()];
            match random(&mut state) % 3 {
                0 => own.insert_str(at + 1, piece),
                1 => own.replace_range(at..at + 1, piece),
                _ => {
                    let end = words
                        .iter()
                        .map(|own| own.0)
                        .find(|own| *own > at)
                        .unwrap_or(at + 1);
                    own.replace_range(at + 1..end.max(at + 1), piece);
                }
            }
        }
        if let Ok(module) = Module::new(&own) {
            loaded += 1;
            execute(&module);
        }
    }
    assert!(loaded > 100, "some are still programs: {loaded}");
}

#[test]
fn deep_and_large_texts_do_not_exhaust_memory() {
    let header = ".version 8.0\n.target sm_90\n.address_size 64\n";
    for body in [
        "{".repeat(100_000),
        format!(
            ".reg .b32 %r<4294967295>;\nmov.u32 %r5, {};",
            "(".repeat(100_000)
        ),
        format!(".local .b8 l[{}];", u64::MAX),
        ".reg .b32 %r<4294967295>; mov.u32 %r4294967294, 1;".to_owned(),
        format!("mov.b64 %r, {};", "{".repeat(100_000)),
    ] {
        let _ = Module::new(&format!("{header}.entry k() {{ {body} }}"));
    }
    let values = ".global .u8 a[2][4000000000] = {{1}};";
    assert!(Module::new(&format!("{header}{values}")).is_err());
}
