//! Recordings that child processes of a test make.
//!
//! A process has one recording, so the test program starts itself again for each.

use std::path::Path;

use cuguard_recording::{
    Definitions, Embedded, Event, Options, RecordedKind, Site, StackDefinition, What,
    embed_symbols, note_exit, record, start,
};
use cuguard_sync::clock::nanoseconds;

/// What the child records: the file, the rank, and a script.
const VARIABLES: [&str; 3] = [
    "CUGUARD_TEST_FILE",
    "CUGUARD_TEST_RANK",
    "CUGUARD_TEST_SCRIPT",
];

struct Known;

/// Return addresses of `load` and `step`, which `main` calls.
static STACKS: [[usize; 2]; 2] = [[0x100, 0x200], [0x110, 0x200]];

impl Definitions for Known {
    fn kinds(&self) -> Vec<RecordedKind> {
        let kind = |name: &str, on_device, is_memory| RecordedKind {
            name: name.to_owned(),
            on_device,
            is_memory,
        };
        vec![kind("device", true, true), kind("stream", false, false)]
    }

    fn stack(&self, id: u32) -> Option<StackDefinition> {
        Some(StackDefinition {
            frames: STACKS.get(id as usize - 1)?,
            ..StackDefinition::default()
        })
    }

    fn name(&self, id: u32) -> Option<String> {
        let names = ["worker", "weights \x1b[31m<b>", "activations"];
        names.get(id as usize - 1).map(|name| (*name).to_owned())
    }
}

fn symbols() -> impl Iterator<Item = Embedded> {
    let functions = [
        (0x100, "app::load", 11),
        (0x110, "app::step", 22),
        (0x200, "app::main", 33),
    ];
    functions.into_iter().map(|(address, function, line)| {
        let site = Site {
            file: "src/main.rs".to_owned(),
            line,
            column: 1,
        };
        Embedded {
            address,
            functions: vec![(function.to_owned(), Some(site))],
        }
    })
}

/// The test that child processes run. It does nothing in the test program itself.
pub fn child() {
    let [Ok(file), rank, Ok(script)] = VARIABLES.map(std::env::var) else {
        return;
    };
    let rank = rank
        .ok()
        .map(|rank| rank.parse().expect("a rank is a number"));
    start(&Options::new(file).rank(rank), &Known).expect("the file can be created");
    embed_symbols(symbols());
    for word in script.split(' ') {
        let numbers: Vec<u64> = word[1..]
            .split(',')
            .map(|number| number.parse().expect("a script has numbers"))
            .collect();
        let what = match (&word[..1], numbers.as_slice()) {
            ("a", [address, bytes, stack, label, stream @ ..]) => What::Allocated {
                kind: 0,
                address: *address,
                bytes: *bytes,
                stack: *stack as u32,
                stream: stream.first().copied().unwrap_or(0),
                context: 1,
                label: *label as u32,
            },
            ("f", [address]) => What::Freed {
                kind: 0,
                address: *address,
                context: 1,
            },
            ("o", [bytes]) => What::OutOfMemory {
                bytes: *bytes,
                stack: 1,
                context: 1,
            },
            other => panic!("{other:?} is no event"),
        };
        record(&Event {
            time: nanoseconds(),
            thread: 1,
            what,
        });
    }
    note_exit(nanoseconds());
}

/// Records a script: `aADDRESS,BYTES,STACK,LABEL` with a stream or without, `fADDRESS` and `oBYTES`, with spaces between
/// them. `test` is the name of the test that calls [`child`].
pub fn make(test: &str, file: &Path, rank: Option<u32>, script: &str) {
    let mut command = cuguard_testing::test_command(test);
    command.env(VARIABLES[0], file).env(VARIABLES[2], script);
    if let Some(rank) = rank {
        command.env(VARIABLES[1], rank.to_string());
    }
    let output = command.output().expect("the test program can be started");
    assert!(output.status.success(), "{output:?}");
    assert!(file.is_file(), "{output:?}");
}
