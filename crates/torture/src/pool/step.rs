//! The steps of a program over pools.

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;

/// The largest block.
const MOST: u32 = 100 * MIB;

/// How a block is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Uninitialized, then written.
    Uninitialized,
    /// Zeroed, unless it is large.
    Zeroed,
    /// From values on the host, unless it is large.
    Copied,
}

/// What a step does. Numbers pick one of what exists, modulo its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolAction {
    /// Allocates a block from a pool, on a stream.
    Allocate(u32, u8, u8, How),
    /// Allocates several blocks of one size.
    Burst(u32, u8, u8, u8),
    /// Frees a block.
    Free(u16),
    /// Frees one block in so many.
    FreeEvery(u8, u8),
    /// Frees a block in a host function of a stream.
    FreeInHostFunction(u16, u8),
    /// Writes a new pattern.
    Write(u16),
    /// Fills a block, unless it is large. Does not wait.
    Fill(u16, u8),
    /// Copies from one block to another through views, and frees the first on request.
    Copy(u16, u16, bool),
    /// Clones a block, unless it is large.
    Clone(u16),
    /// Writes to a block on another stream, records that stream, and frees the block at once.
    UseAndFree(u16, u8),
    /// Compares a block.
    Check(u16),
    /// Releases ownership of a block.
    IntoRaw(u16),
    /// Takes ownership of a block again, on a stream or without one.
    FromRaw(u8, u8),
    /// Releases idle memory of a pool.
    Trim(u8),
    /// Compacts a pool.
    Compact(u8),
    /// Creates a stream.
    Stream,
    /// Drops a stream.
    EndStream(u8),
    /// Keeps a stream busy for some time.
    Delay(u8),
    /// Waits for the device.
    Synchronize,
    /// Creates a pool with one of several limits and settings.
    Pool(u8),
    /// Drops a pool, which may have blocks.
    EndPool(u8),
    /// Allocates blocks and panics, with a block of the program.
    Panic(u32, u16),
}

/// A step, on the main thread (0) or on another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStep {
    /// The thread: 0 to 3, of which two are the main thread.
    pub thread: u8,
    /// What it does.
    pub action: PoolAction,
}

/// A sequence of steps between a beginning and an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolProgram {
    /// The context and the first pool: bit 0 for buffers of the context from a pool, the next bits for its limit.
    pub begin: u8,
    /// Its steps.
    pub steps: Vec<PoolStep>,
    /// How it ends: bit 0 to close the context first; the rest is the order of drops.
    pub end: u32,
}

impl PoolProgram {
    /// Random programs of up to `most` steps, which shrink to fewer and simpler ones.
    pub fn strategy(most: usize) -> impl Strategy<Value = Self> {
        let steps = vec(steps(), most / 4..=most);
        (any::<u8>(), steps, any::<u32>()).prop_map(|(begin, steps, end)| Self {
            begin,
            steps,
            end,
        })
    }
}

/// Sizes in bytes: most are small; others are multiples of the page and just beside them.
fn sizes() -> impl Strategy<Value = u32> {
    let beside = prop_oneof![
        Just(0_i32),
        Just(-1),
        Just(1),
        Just(16 << 10),
        Just(-(16 << 10)),
        -(300_i32 << 10)..(300 << 10),
    ];
    let near = |pages: std::ops::RangeInclusive<u32>| {
        (pages, beside.clone()).prop_map(|(pages, beside)| {
            let bytes = (pages * 2 * MIB).saturating_add_signed(beside);
            bytes.clamp(1, MOST)
        })
    };
    prop_oneof![
        5 => 1..=4 * KIB,
        3 => 1..=300 * KIB,
        4 => 200 * KIB..=2 * MIB,
        1 => Just(MIB),
        4 => near(1..=8),
        2 => 2 * MIB..=16 * MIB,
        1 => near(9..=50),
    ]
}

fn steps() -> impl Strategy<Value = PoolStep> {
    use PoolAction::*;
    let how = prop_oneof![
        3 => Just(How::Uninitialized),
        1 => Just(How::Zeroed),
        1 => Just(How::Copied),
    ];
    let small = || any::<u8>();
    let one = || any::<u16>();
    let action = prop_oneof![
        24 => (sizes(), small(), small(), how).prop_map(|(b, p, s, h)| Allocate(b, p, s, h)),
        4 => (sizes(), 2_u8..20, small(), small()).prop_map(|(b, n, p, s)| Burst(b, n, p, s)),
        16 => one().prop_map(Free),
        3 => (2_u8..5, small()).prop_map(|(every, first)| FreeEvery(every, first)),
        1 => (one(), small()).prop_map(|(at, stream)| FreeInHostFunction(at, stream)),
        4 => one().prop_map(Write),
        5 => (one(), small()).prop_map(|(at, value)| Fill(at, value)),
        4 => (one(), one(), any::<bool>()).prop_map(|(to, from, free)| Copy(to, from, free)),
        3 => one().prop_map(Clone),
        3 => (one(), small()).prop_map(|(at, stream)| UseAndFree(at, stream)),
        6 => one().prop_map(Check),
        3 => one().prop_map(IntoRaw),
        4 => (small(), small()).prop_map(|(at, stream)| FromRaw(at, stream)),
        3 => small().prop_map(Trim),
        5 => small().prop_map(Compact),
        2 => Just(Stream),
        2 => small().prop_map(EndStream),
        3 => small().prop_map(Delay),
        2 => Just(Synchronize),
        1 => small().prop_map(Pool),
        1 => small().prop_map(EndPool),
        1 => (sizes(), one()).prop_map(|(bytes, at)| Panic(bytes, at)),
    ];
    (0_u8..4, action).prop_map(|(thread, action)| PoolStep { thread, action })
}
