//! The processor that a work of one thread runs on: one whose core does nothing else.
//!
//! In a virtual machine another one may run on the same core. Then all that is measured here takes half as long again and more,
//! while the clock is as fast as before: only work with many independent steps shows it.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::time::Instant;

/// Independent steps in a nanosecond, about: the median of some tries.
pub fn steps() -> f64 {
    const STEPS: u32 = 20_000;
    const CHAINS: usize = 6;
    let mut rates: Vec<f64> = (0..9)
        .map(|_| {
            let mut chains: [u64; CHAINS] = black_box([1, 2, 3, 4, 5, 6]);
            let begin = Instant::now();
            for _ in 0..STEPS {
                for (number, chain) in chains.iter_mut().enumerate() {
                    *chain =
                        (chain.rotate_left(7 + number as u32) ^ 0x9e37).wrapping_add(*chain >> 5);
                }
            }
            black_box(chains);
            f64::from(STEPS) * CHAINS as f64 / begin.elapsed().as_nanos() as f64
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// The calling thread stays on one processor until this is dropped.
pub struct Pinned {
    pub processor: usize,
    before: libc::cpu_set_t,
}

impl Pinned {
    /// The processor that does the most [steps] now. `None` where the thread cannot be pinned.
    pub fn to_quiet() -> Option<Self> {
        let before = affinity()?;
        let allowed = (0..libc::CPU_SETSIZE as usize).filter(|&processor| {
            // SAFETY: the number is below the size of the set.
            unsafe { libc::CPU_ISSET(processor, &before) }
        });
        let rates: Vec<(f64, usize)> = allowed
            .filter(|&processor| set_affinity(&only(processor)))
            .map(|processor| (steps(), processor))
            .collect();
        let fastest = rates.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
        // Dropped, and so undone, where there is none.
        let pinned = Self {
            processor: fastest.map_or(0, |(_, processor)| processor),
            before,
        };
        (fastest.is_some() && set_affinity(&only(pinned.processor))).then_some(pinned)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        set_affinity(&self.before);
    }
}

fn affinity() -> Option<libc::cpu_set_t> {
    let mut set = MaybeUninit::zeroed();
    // SAFETY: the set is as large as said.
    let result =
        unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr()) };
    // SAFETY: all zeros are a set, and the call has filled it.
    (result == 0).then(|| unsafe { set.assume_init() })
}

fn only(processor: usize) -> libc::cpu_set_t {
    // SAFETY: all zeros are an empty set.
    let mut set: libc::cpu_set_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: the number is that of a member of another set.
    unsafe { libc::CPU_SET(processor, &mut set) };
    set
}

fn set_affinity(set: &libc::cpu_set_t) -> bool {
    // SAFETY: the set is as large as said.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) == 0 }
}
