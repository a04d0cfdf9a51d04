//! Stacks that a thread was on before, and others that look alike.

use crate::common;
use std::hint::black_box;

use crate::common::rules;
use cuguard_stack::{Remembered, capture};

type Stacks = Remembered<usize>;

/// Counts the stacks that were not known.
#[inline(never)]
fn count(stacks: &mut Stacks, new: &mut usize) -> usize {
    stacks.capture(|frames| {
        *new += 1;
        frames.len()
    })
}

#[test]
fn a_known_stack_is_not_captured_again() {
    let (mut stacks, mut new) = (Stacks::new(64), 0);
    for _ in 0..black_box(100) {
        count(&mut stacks, &mut new);
    }
    match rules() {
        // To remember it is worth while the second time.
        common::By::Rules => assert_eq!(new, 2),
        _ => assert_eq!(new, 100),
    }
}

/// The same registers at the start, and another caller further outside.
#[test]
fn callers_are_told_apart() {
    #[inline(never)]
    fn inner(stacks: &mut Remembered<usize>) -> usize {
        black_box(stacks.capture(|frames| frames.iter().fold(0, |sum, frame| sum ^ frame)))
    }
    #[inline(never)]
    fn middle(stacks: &mut Remembered<usize>) -> usize {
        black_box(inner(stacks))
    }
    #[inline(never)]
    fn one(stacks: &mut Remembered<usize>) -> usize {
        black_box(middle(stacks))
    }
    #[inline(never)]
    fn other(stacks: &mut Remembered<usize>) -> usize {
        black_box(middle(stacks)) + black_box(0)
    }
    let mut stacks = Remembered::new(64);
    let both: Vec<[usize; 2]> = (0..black_box(10))
        .map(|_| [one(&mut stacks), other(&mut stacks)])
        .collect();
    assert_ne!(both[0][0], both[0][1]);
    assert!(both.iter().all(|pair| *pair == both[0]), "{both:x?}");
}

/// Frames of varying size, whose functions have a frame pointer.
#[test]
fn depths_are_told_apart() {
    #[inline(never)]
    fn deep(levels: usize, stacks: &mut Remembered<usize>) -> (usize, usize) {
        if levels == 0 {
            let mut frames = [0; 256];
            let known = stacks.capture(|frames| frames.len());
            return (known, capture(&mut frames));
        }
        let room = vec![levels; levels % 3];
        let found = deep(levels - 1, stacks);
        black_box(room);
        found
    }
    let mut stacks = Remembered::new(256);
    for round in 0..4 {
        for levels in (0..100).rev() {
            let (known, expected) = deep(levels, &mut stacks);
            assert_eq!(known, expected, "{levels} levels, round {round}");
        }
    }
}

/// The innermost frames, if there are more.
#[test]
fn the_depth_is_a_limit() {
    let mut stacks = Remembered::new(3);
    for _ in 0..black_box(3) {
        assert_eq!(stacks.capture(|frames| frames.len()), 3);
    }
    assert_eq!(Remembered::new(0).capture(|frames| frames.len()), 0);
}
