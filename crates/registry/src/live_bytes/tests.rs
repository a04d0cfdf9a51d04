//! One thread, several, and several that contend.

use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread;

use super::{LiveBytes, MOST_SLACK, Relaxed, SWITCHES};

const BLOCK: u64 = 1000;

#[test]
fn one_thread_has_an_exact_peak() {
    let bytes = LiveBytes::default();
    for _ in 0..2 * SWITCHES {
        bytes.add(100);
        bytes.add(50);
        bytes.sub(100);
        assert_eq!((bytes.live(), bytes.bound()), (50, 50));
        bytes.sub(50);
    }
    assert_eq!((bytes.live(), bytes.peak()), (0, 150));
}

/// What the first thread allocates and frees between two reads of another one does not count as freed only.
#[test]
fn the_bound_is_not_too_low_while_the_first_thread_counts() {
    const LIVE: u64 = 1 << 20;
    let bytes = LiveBytes::default();
    bytes.add(LIVE);
    let is_done = AtomicBool::new(false);
    let least = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut least = u64::MAX;
            while !is_done.load(Relaxed) {
                least = least.min(bytes.bound());
            }
            least
        });
        for _ in 0..3_000_000 {
            bytes.add(BLOCK);
            bytes.sub(BLOCK);
        }
        is_done.store(true, Relaxed);
        reader.join().unwrap()
    });
    assert!(!bytes.is_shared.load(Relaxed) && least >= LIVE, "{least}");
}

/// What the first thread has alive counts when a second one begins, and what it had at its peak does not.
#[test]
fn a_second_thread_begins_with_what_is_alive() {
    let bytes = LiveBytes::default();
    bytes.add(1000);
    bytes.sub(900);
    assert!(!bytes.is_shared.load(Relaxed));
    thread::scope(|scope| {
        scope.spawn(|| bytes.add(50));
    });
    assert!(bytes.is_shared.load(Relaxed));
    assert_eq!(
        (bytes.live(), bytes.bound(), bytes.peak()),
        (150, 150, 1000)
    );
    bytes.sub(100);
    bytes.add(960);
    assert_eq!(
        (bytes.live(), bytes.bound(), bytes.peak()),
        (1010, 1010, 1010)
    );
}

/// A second thread begins at any moment: no block is lost, and the peak is at least what is alive at the end.
#[test]
fn a_second_thread_begins_while_the_first_one_counts() {
    for _ in 0..500 {
        let (bytes, barrier) = (LiveBytes::default(), Barrier::new(2));
        let count = || {
            barrier.wait();
            for _ in 0..20 {
                bytes.add(BLOCK);
                bytes.sub(BLOCK);
                bytes.add(1);
            }
        };
        thread::scope(|scope| {
            scope.spawn(count);
            count();
        });
        assert_eq!((bytes.live(), bytes.bound()), (40, 40));
        assert!((BLOCK..=2 * BLOCK + 40).contains(&bytes.peak()));
    }
}

/// Threads that take turns do not contend so often that the peak is estimated.
#[test]
fn some_threads_in_turn_have_an_exact_peak() {
    let bytes = LiveBytes::default();
    for _ in 0..100 {
        thread::scope(|scope| {
            scope.spawn(|| bytes.add(10));
        });
        bytes.sub(4);
    }
    assert_eq!((bytes.live(), bytes.peak()), (600, 604));
}

#[test]
fn threads_that_contend_have_an_exact_sum_and_a_close_peak() {
    const THREADS: u64 = 4;
    let (bytes, barrier) = (LiveBytes::default(), Barrier::new(THREADS as usize));
    let (sender, receiver) = channel();
    let receiver = std::sync::Mutex::new(receiver);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let (sender, bytes, barrier, receiver) = (sender.clone(), &bytes, &barrier, &receiver);
            scope.spawn(move || {
                barrier.wait();
                // One of another thread is freed for each that this thread allocates.
                for _ in 0..5000 {
                    bytes.add(BLOCK);
                    sender.send(()).unwrap();
                    receiver.lock().unwrap().recv().unwrap();
                    bytes.sub(BLOCK);
                }
                barrier.wait();
                bytes.add(BLOCK);
            });
        }
    });
    assert_eq!(bytes.live(), THREADS * BLOCK);
    assert!(bytes.bound() >= THREADS * BLOCK);
    let most = THREADS * (BLOCK + 2 * BLOCK);
    assert!((BLOCK..=most).contains(&bytes.peak()), "{}", bytes.peak());
}

/// Blocks beyond the most slack: each changes the bound, and the sum stays exact.
#[test]
fn the_slack_has_a_limit() {
    let bytes = LiveBytes::default();
    bytes.share();
    bytes.shared.is_contended.store(true, Relaxed);
    bytes.add(10 * MOST_SLACK);
    assert_eq!(bytes.bound(), 11 * MOST_SLACK);
    bytes.sub(10 * MOST_SLACK);
    assert_eq!((bytes.live(), bytes.bound()), (0, MOST_SLACK));
}

#[test]
fn the_bound_can_be_made_exact() {
    let bytes = LiveBytes::default();
    bytes.share();
    bytes.shared.switches.store(2 * SWITCHES, Relaxed);
    bytes.shared.is_contended.store(true, Relaxed);
    bytes.add(1000);
    assert_eq!(bytes.bound(), 2000);
    bytes.set_exact(true);
    // What was claimed before stays until the next call.
    bytes.add(500);
    bytes.sub(100);
    assert_eq!(bytes.bound(), 1400);
    bytes.add(600);
    assert_eq!((bytes.bound(), bytes.live()), (2000, 2000));
    bytes.set_exact(false);
    bytes.add(1000);
    assert_eq!((bytes.bound(), bytes.live()), (4000, 3000));
}

#[test]
fn what_is_removed_twice_is_not_below_zero() {
    let bytes = LiveBytes::default();
    bytes.sub(10);
    assert_eq!((bytes.live(), bytes.peak()), (0, 0));
    bytes.add(5);
    assert_eq!((bytes.live(), bytes.peak()), (0, 0));
    bytes.add(25);
    assert_eq!((bytes.live(), bytes.peak()), (20, 20));
}
