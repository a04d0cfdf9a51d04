//! Shared by the ported programs: pseudo-random numbers, for which the originals use other crates.

#![allow(dead_code, reason = "each program uses a part of it")]

/// Numbers from -10 to 10, the same in each run (SplitMix64).
pub(crate) fn random(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits >> 40) as f32 / (1 << 24) as f32
    };
    (0..count).map(|_| 20.0 * next() - 10.0).collect()
}
