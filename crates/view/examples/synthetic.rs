//! Writes a recording with any number of events, to measure how long reports of it take.
//!
//! ```text
//!     cargo run --release -p cuguard-view --example synthetic -- big.cgr 10000000
//!     time target/release/cuguard report big.cgr
//! ```
//!
//! Half of the events are allocations, of 10,000 stack traces with 8 frames. One allocation in sixteen is never freed.

use std::error::Error;
use std::sync::OnceLock;

use cuguard_recording::{
    Definitions, Event, Options, RecordedKind, StackDefinition, What, note_exit, record, start,
};
use cuguard_sync::clock::nanoseconds;

const STACKS: u32 = 10_000;
const FRAMES: usize = 8;

struct Synthetic;

impl Definitions for Synthetic {
    fn kinds(&self) -> Vec<RecordedKind> {
        vec![RecordedKind {
            name: "device".to_owned(),
            on_device: true,
            is_memory: true,
        }]
    }

    fn stack(&self, id: u32) -> Option<StackDefinition> {
        static ADDRESSES: OnceLock<Vec<usize>> = OnceLock::new();
        // In no module: there is nothing to resolve.
        let addresses = ADDRESSES.get_or_init(|| {
            (0x10..)
                .step_by(0x10)
                .take(STACKS as usize + FRAMES)
                .collect()
        });
        let frames = addresses.get(id as usize..id as usize + FRAMES)?;
        Some(StackDefinition {
            frames,
            ..StackDefinition::default()
        })
    }

    fn name(&self, id: u32) -> Option<String> {
        Some(format!("name {id}"))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(events), None) = (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: synthetic FILE EVENTS".into());
    };
    let events: u64 = events.parse()?;
    start(&Options::new(path), &Synthetic)?;
    let mut alive = std::collections::VecDeque::new();
    // A generator of Lehmer's kind: the same file every time, but for times.
    let mut random = 1_u64;
    for number in 0..events {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let dice = random >> 33;
        let what = match number.is_multiple_of(2) || alive.is_empty() {
            true => {
                let address = 0x7f00_0000_0000 + number * 512;
                if !dice.is_multiple_of(16) {
                    alive.push_back(address);
                }
                What::Allocated {
                    kind: 0,
                    address,
                    bytes: 512 + dice % (1 << 20),
                    stack: 1 + (dice as u32 / 16) % (STACKS - 1),
                    stream: 0,
                    context: 1,
                    label: 0,
                }
            }
            false => What::Freed {
                kind: 0,
                address: alive.pop_front().unwrap_or_default(),
                context: 1,
            },
        };
        record(&Event {
            time: nanoseconds(),
            thread: 1,
            what,
        });
    }
    note_exit(nanoseconds());
    Ok(())
}
