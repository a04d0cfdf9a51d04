//! Recordings made by hand.

// Each test program uses a part of it.
#![allow(dead_code, reason = "each test program uses a part of it")]

use cuguard_recording::{Event, Frame, Meta, RecordedKind, Recording, Site, Stack, What};
use cuguard_view::{Frame as Named, Resolver, Run};

/// Kinds by index: device memory, pinned memory, streams, stream-ordered memory.
pub const DEVICE: u8 = 0;
pub const PINNED: u8 = 1;
pub const STREAM: u8 = 2;
pub const ORDERED: u8 = 3;

pub fn kinds() -> Vec<RecordedKind> {
    [
        ("device", true, true),
        ("pinned", false, true),
        ("stream", false, false),
        ("stream_ordered", true, true),
    ]
    .map(|(name, on_device, is_memory)| RecordedKind {
        name: name.to_owned(),
        on_device,
        is_memory,
    })
    .to_vec()
}

/// Stacks by number: 0 is unknown, 1 is `load` from `main`, 2 is `step` from `main`, 3 has a line and no frames.
pub fn recording(events: Vec<Event>) -> Recording {
    let native = |addresses: &[u64]| Stack {
        frames: addresses.iter().copied().map(Frame::Native).collect(),
        ..Stack::default()
    };
    let line = Stack {
        site: Some(Site {
            file: "src/line.rs".to_owned(),
            line: 7,
            column: 3,
        }),
        type_name: "f32".to_owned(),
        ..Stack::default()
    };
    Recording {
        meta: Meta {
            command: "app --train".to_owned(),
            pid: 42,
            host: "node7".to_owned(),
            ..Meta::default()
        },
        kinds: kinds(),
        stacks: vec![
            Stack::default(),
            native(&[0x10, 0x100, 0x200]),
            native(&[0x10, 0x110, 0x200]),
            line,
        ],
        names: ["", "main", "worker", "weights"]
            .map(str::to_owned)
            .to_vec(),
        events,
        ..Recording::default()
    }
}

/// Resolves the addresses of [`recording`].
pub struct Names;

impl Resolver for Names {
    fn frames(&mut self, address: u64) -> Vec<Named> {
        let (function, line, library, in_app) = match address {
            0x10 => ("cuMemAlloc_v2", 0, "libcuda.so.1", false),
            0x100 => ("app::load", 11, "app", true),
            0x110 => ("app::step", 22, "app", true),
            _ => ("app::main", 33, "app", true),
        };
        vec![Named {
            function: function.to_owned(),
            file: if line == 0 { "" } else { "src/main.rs" }.to_owned(),
            line,
            library: library.to_owned(),
            in_app,
        }]
    }
}

pub fn run(events: Vec<Event>) -> Run {
    let mut run = Run::from_recording(recording(events), &mut Names);
    run.source = "a.cgr".to_owned();
    run
}

pub fn at(time: u64, what: What) -> Event {
    Event {
        time,
        thread: 1,
        what,
    }
}

pub fn allocated(kind: u8, address: u64, bytes: u64, stack: u32) -> What {
    What::Allocated {
        kind,
        address,
        bytes,
        stack,
        stream: 0,
        context: 1,
        label: 0,
    }
}

pub fn freed(kind: u8, address: u64) -> What {
    What::Freed {
        kind,
        address,
        context: 1,
    }
}
