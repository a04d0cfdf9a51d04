//! Children that record: each test runs itself again as one.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use cuguard_recording::{
    Definitions, Event, Options, RecordedKind, Recording, StackDefinition, What, is_on, record,
    start,
};
use cuguard_sync::clock;

/// Where the file of a child is, by this variable.
pub(crate) const FILE: &str = "RECORDING";

/// What numbers mean.
pub(crate) struct Source;

impl Definitions for Source {
    fn kinds(&self) -> Vec<RecordedKind> {
        vec![RecordedKind {
            name: "device".to_owned(),
            on_device: true,
            is_memory: true,
        }]
    }

    fn stack(&self, id: u32) -> Option<StackDefinition> {
        static FRAMES: [usize; 2] = [0x10_0000, 7 | 1 << 63];
        Some(StackDefinition {
            site: None,
            type_name: "u8",
            frames: if id == 9 { &FRAMES } else { &FRAMES[..1] },
        })
    }

    fn name(&self, id: u32) -> Option<String> {
        Some(format!("thread {id}"))
    }
}

/// A file that is removed at the end.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cuguard-process-{}-{number}.cgr", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    pub(crate) fn command(&self, test: &str) -> Command {
        let mut command = cuguard_testing::test_command(test);
        command.env(FILE, &self.0);
        command
    }

    pub(crate) fn run(&self, test: &str) -> Output {
        let output = self.command(test).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    }

    pub(crate) fn read(&self) -> Recording {
        Recording::open(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// In a child, starts its recording.
pub(crate) fn started() -> bool {
    let Some(file) = std::env::var_os(FILE) else {
        return false;
    };
    start(&Options::new(file).keep_addresses(true), &Source).unwrap();
    assert!(is_on());
    true
}

pub(crate) fn allocate(thread: u32, address: u64) {
    let what = What::Allocated {
        kind: 0,
        address,
        bytes: 512,
        stack: 1 + address as u32 % 3,
        stream: 0,
        context: 1,
        label: 0,
    };
    let time = clock::nanoseconds();
    record(&Event { time, thread, what });
}

pub(crate) fn free(thread: u32, address: u64) {
    let what = What::Freed {
        kind: 0,
        address,
        context: 1,
    };
    let time = clock::nanoseconds();
    record(&Event { time, thread, what });
}
