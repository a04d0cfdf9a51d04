//! Random programs against the model.

use super::fake::{KIB, MIB};
use super::model::{Model, Numbers};
use cuguard_pool::Settings;
use proptest::prelude::*;
use std::time::{Duration, Instant};

const STREAMS: u64 = 4;

#[derive(Clone, Debug)]
enum Op {
    Allocate {
        stream: u64,
        bytes: u64,
    },
    Many {
        stream: u64,
        bytes: u64,
        count: usize,
    },
    Free {
        which: usize,
        elsewhere: Option<u64>,
    },
    FreeMost {
        keep: usize,
    },
    Complete {
        stream: u64,
    },
    EndStream {
        stream: u64,
    },
    Trim {
        keep: u64,
    },
    Decay {
        seconds: u64,
    },
    Compact {
        wanted: u64,
    },
    Pin {
        which: usize,
    },
}

struct Program {
    model: Model,
    clock: Instant,
}

impl Program {
    fn new(card: u64, settings: Settings) -> Self {
        Self {
            model: Model::new(card, settings),
            clock: Instant::now(),
        }
    }

    fn step(&mut self, op: &Op) {
        let model = &mut self.model;
        match *op {
            // The card may be full.
            Op::Allocate { stream, bytes } => drop(model.allocate(stream, bytes)),
            Op::Many {
                stream,
                bytes,
                count,
            } => drop(model.allocate_many(stream, bytes, count)),
            Op::Free { which, elsewhere } => {
                if !model.live.is_empty() {
                    let index = which % model.live.len();
                    let stream = elsewhere.unwrap_or(model.live[index].stream);
                    model.free(index, stream);
                }
            }
            Op::FreeMost { keep } => {
                let mut at = 0;
                while at < model.live.len() {
                    if at % keep == 0 {
                        at += 1;
                    } else {
                        let stream = model.live[at].stream;
                        model.free(at, stream);
                        at += usize::from(at < model.live.len());
                    }
                }
            }
            Op::Complete { stream } => model.fake.complete(stream),
            Op::EndStream { stream } => model.pool.stream_ends(&stream).unwrap(),
            Op::Trim { keep } => {
                let before = model.pool.stats().held;
                let released = model.pool.trim(keep).unwrap();
                assert_eq!(before - model.pool.stats().held, released);
            }
            Op::Decay { seconds } => {
                self.clock += Duration::from_secs(seconds);
                model.pool.decay(self.clock).unwrap();
            }
            Op::Compact { wanted } => {
                let before = model.pool.stats().held;
                let compacted = model.compact(wanted).unwrap();
                assert_eq!(before - model.pool.stats().held, compacted.released);
            }
            Op::Pin { which } => {
                if !model.live.is_empty() {
                    let index = which % model.live.len();
                    let live = &mut model.live[index];
                    let address = live.block.address;
                    assert!(if live.pinned {
                        model.pool.unpin(address)
                    } else {
                        model.pool.pin(address)
                    });
                    live.pinned = !live.pinned;
                }
            }
        }
    }

    fn finish(mut self) {
        self.model.check();
        self.model.check_overlap();
        while let Some(last) = self.model.live.len().checked_sub(1) {
            self.model.free(last, 0);
        }
        self.model.fake.complete_all();
        self.model.pool.trim(0).unwrap();
        assert_eq!(
            self.model.pool.stats().held,
            0,
            "{:?}",
            self.model.pool.stats()
        );
        self.model.destroy();
    }
}

fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![
        1..=4 * KIB,
        1..=256 * KIB,
        Just(64 * KIB),
        256 * KIB..=2 * MIB,
        2 * MIB..=10 * MIB,
        60 * MIB..=140 * MIB,
    ]
}

fn ops() -> impl Strategy<Value = Op> {
    let stream = 0..STREAMS;
    prop_oneof![
        8 => (stream.clone(), sizes()).prop_map(|(stream, bytes)| Op::Allocate { stream, bytes }),
        2 => (stream.clone(), sizes(), 1..20usize).prop_map(|(stream, bytes, count)| Op::Many { stream, bytes, count }),
        6 => (any::<usize>(), proptest::option::weighted(0.2, stream.clone()))
            .prop_map(|(which, elsewhere)| Op::Free { which, elsewhere }),
        1 => (2..5usize).prop_map(|keep| Op::FreeMost { keep }),
        3 => stream.clone().prop_map(|stream| Op::Complete { stream }),
        1 => stream.prop_map(|stream| Op::EndStream { stream }),
        1 => prop_oneof![Just(0), 0..100 * MIB].prop_map(|keep| Op::Trim { keep }),
        1 => (0..8u64).prop_map(|seconds| Op::Decay { seconds }),
        1 => prop_oneof![Just(u64::MAX), 0..50 * MIB].prop_map(|wanted| Op::Compact { wanted }),
        1 => any::<usize>().prop_map(|which| Op::Pin { which }),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(limited, keeps, share_tails, plain)| Settings {
            limit: if limited { 300 * MIB } else { u64::MAX },
            keep: if keeps { 20 * MIB } else { 0 },
            share_tails,
            merge: !plain || share_tails,
            ..Settings::default()
        },
    )
}

/// An environment variable.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect(name))
}

proptest! {
    #![proptest_config(cuguard_testing::property_config!(24))]

    #[test]
    fn no_byte_changes_and_nothing_is_lost(
        settings in settings(),
        reservable in prop_oneof![Just(1 << 44), Just(150 * MIB)],
        ops in proptest::collection::vec(ops(), 1..200),
    ) {
        let mut program = Program::new(512 * MIB, settings);
        program.model.fake.limit_reservations(reservable);
        for op in &ops {
            program.step(op);
            program.model.check();
            program.model.check_overlap();
        }
        program.finish();
    }
}

/// A long program; `CUGUARD_POOL_STEPS` sets how long, `CUGUARD_POOL_SEED` which.
#[test]
fn a_long_program() {
    let steps = number("CUGUARD_POOL_STEPS", 10_000);
    let mut numbers = Numbers(number("CUGUARD_POOL_SEED", 42));
    let mut program = Program::new(2 << 30, Settings::default());
    for step in 0..steps {
        let stream = numbers.below(STREAMS);
        let which = numbers.below(1 << 40) as usize;
        let full = program.model.live.len() > 3000;
        let op = match numbers.below(if full { 1000 } else { 2000 }) {
            0..1 => Op::Compact { wanted: u64::MAX },
            1..3 => Op::Trim {
                keep: numbers.below(100 * MIB),
            },
            3..6 => Op::Decay {
                seconds: numbers.below(8),
            },
            6..8 => Op::EndStream { stream },
            8..9 => Op::FreeMost {
                keep: 2 + which % 4,
            },
            9..60 => Op::Complete { stream },
            60..70 => Op::Pin { which },
            70..700 => Op::Free {
                which,
                elsewhere: which.is_multiple_of(5).then_some(stream),
            },
            _ => {
                let bytes = match numbers.below(100) {
                    0..40 => 1 + numbers.below(4 * KIB),
                    40..70 => 1 + numbers.below(256 * KIB),
                    70..80 => 64 * KIB,
                    80..95 => 256 * KIB + numbers.below(3 * MIB),
                    95..99 => numbers.below(20 * MIB),
                    _ => numbers.below(150 * MIB),
                };
                Op::Allocate { stream, bytes }
            }
        };
        program.step(&op);
        if step % 256 == 0 || matches!(op, Op::Compact { .. }) {
            program.model.check();
            program.model.check_overlap();
        }
    }
    println!("{steps} steps: {:?}", program.model.pool.stats());
    program.finish();
}
