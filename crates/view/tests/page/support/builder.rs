//! Makes runs as a program would: time passes, memory is allocated and freed, addresses are reused.

use std::collections::HashMap;

use cuguard_view::{Allocation, CallSite, FOREVER, Fate, Frame, Mark, MarkKind, RecordedKind, Run};

pub const MIB: u64 = 1 << 20;
pub const DEVICE: u8 = 0;
pub const PINNED: u8 = 1;
pub const POOLED: u8 = 2;
pub const STREAM: u8 = 3;
const PAGE: u64 = 2 * MIB;

/// A run that is being made.
pub struct Builder {
    pub run: Run,
    /// Nanoseconds since the begin.
    pub now: u64,
    names: HashMap<String, u32>,
    /// Freed addresses by size, and where new pages and small blocks come from.
    free: HashMap<u64, Vec<u64>>,
    next_page: u64,
    small: (u64, u64),
    seed: u64,
}

impl Builder {
    pub fn new(command: &str) -> Self {
        Self::seeded(command, 0x9e37_79b9_7f4a_7c15)
    }

    /// With other random numbers. The seed is not 0.
    pub fn seeded(command: &str, seed: u64) -> Self {
        let kind = |name: &str, on_device, is_memory| RecordedKind {
            name: name.into(),
            on_device,
            is_memory,
        };
        Self {
            run: Run {
                source: "run.cgr".into(),
                command: command.into(),
                pid: 4242,
                host: "node-7".into(),
                started: 1_790_000_000_000_000_000,
                exited: true,
                kinds: vec![
                    kind("device", true, true),
                    kind("pinned", false, true),
                    kind("pooled", true, true),
                    kind("stream", false, false),
                ],
                sites: vec![CallSite::default()],
                names: vec![String::new()],
                ..Run::default()
            },
            now: 0,
            names: HashMap::new(),
            free: HashMap::new(),
            next_page: 0x7f4a_0000_0000,
            small: (0, 0),
            seed,
        }
    }

    /// A number below `limit`, the same in every run of the program.
    pub fn random(&mut self, limit: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % limit
    }

    pub fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        *self.names.entry(name.into()).or_insert_with(|| {
            self.run.names.push(name.into());
            self.run.names.len() as u32 - 1
        })
    }

    /// A call site from lines `function|file|line|library`, innermost first; a `!` before it marks the program's own.
    pub fn site(&mut self, type_name: &str, frames: &[&str]) -> u32 {
        let frames = frames.iter().map(|text| {
            let (in_app, text) = text
                .strip_prefix('!')
                .map_or((false, *text), |rest| (true, rest));
            let mut parts = text.split('|');
            let mut next = || parts.next().unwrap_or("").to_owned();
            Frame {
                function: next(),
                file: next(),
                line: next().parse().unwrap_or(0),
                library: next(),
                in_app,
            }
        });
        let frames = frames.collect();
        self.run.sites.push(CallSite {
            type_name: type_name.into(),
            frames,
        });
        self.run.sites.len() as u32 - 1
    }

    pub fn pass(&mut self, nanoseconds: u64) {
        self.now += nanoseconds;
    }

    /// Allocates, and returns the index.
    pub fn allocate(&mut self, site: u32, kind: u8, bytes: u64, label: &str) -> usize {
        let label = self.name(label);
        let thread = self.name("main");
        let address = self.place(bytes);
        self.run.allocations.push(Allocation {
            start: self.now,
            end: FOREVER,
            address,
            bytes,
            stream: if kind == POOLED { 0x55d0_c0de_1000 } else { 0 },
            site,
            thread,
            label,
            context: 1,
            kind,
            leaked: false,
            fate: Fate::Unknown,
        });
        self.now += 700;
        self.run.allocations.len() - 1
    }

    pub fn free(&mut self, index: usize) {
        let allocation = &mut self.run.allocations[index];
        assert_eq!(allocation.end, FOREVER, "freed twice");
        allocation.end = self.now;
        self.free
            .entry(round(allocation.bytes))
            .or_default()
            .push(allocation.address);
        self.now += 600;
    }

    fn place(&mut self, bytes: u64) -> u64 {
        let size = round(bytes);
        if let Some(address) = self.free.get_mut(&size).and_then(Vec::pop) {
            return address;
        }
        // Large blocks have pages of their own; small ones are packed.
        if size >= MIB {
            self.next_page += size.next_multiple_of(PAGE);
            return self.next_page - size.next_multiple_of(PAGE);
        }
        if self.small.0 + size > self.small.1 {
            self.small = (self.next_page, self.next_page + PAGE);
            self.next_page += PAGE;
        }
        self.small.0 += size;
        self.small.0 - size
    }

    pub fn mark(&mut self, kind: MarkKind) {
        self.run.marks.push(Mark {
            time: self.now,
            kind,
        });
        self.now += 500;
    }

    pub fn finish(mut self) -> Run {
        self.run.end = self.now;
        self.run
    }
}

fn round(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(512)
}
