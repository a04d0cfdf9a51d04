//! The owner and other threads, also after a fork.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{Biased, NEEDS_BARRIER};

/// Two words that are equal whenever no thread is inside.
type Pair = Biased<[u64; 2]>;

fn add(pair: &mut [u64; 2]) {
    assert_eq!(pair[0], pair[1]);
    pair[0] += 1;
    // The compiler must not write both at once.
    std::hint::black_box(&mut *pair);
    pair[1] += 1;
}

#[test]
fn the_owner_and_others_exclude_each_other() {
    const OFTEN: u64 = 300_000;
    const SELDOM: u64 = 1_000;
    let start = AtomicBool::new(false);
    let pair = thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel::<Arc<Pair>>();
        let owner = scope.spawn({
            let start = &start;
            move || {
                let pair = Arc::new(Pair::new([0; 2]));
                sender.send(pair.clone()).unwrap();
                while !start.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                for _ in 0..OFTEN {
                    add(&mut pair.enter().expect("the owner"));
                }
            }
        });
        let pair = receiver.recv().unwrap();
        for _ in 0..3 {
            let pair = pair.clone();
            scope.spawn(move || {
                (0..SELDOM).for_each(|_| add(&mut pair.lock().expect("not inside")));
            });
        }
        start.store(true, Ordering::Relaxed);
        owner.join().unwrap();
        pair
    });
    let pair = Arc::into_inner(pair).unwrap().into_inner();
    assert_eq!(pair, [OFTEN + 3 * SELDOM; 2]);
}

#[test]
fn a_second_entry_is_refused() {
    let pair = Pair::new([0; 2]);
    let inside = pair.enter().expect("the owner");
    assert!(pair.enter().is_none() && pair.lock().is_none() && !pair.release());
    drop(inside);
    let taken = pair.lock().expect("not inside");
    assert!(pair.enter().is_none() && pair.lock().is_none());
    drop(taken);
    assert!(pair.enter().is_some());
}

/// As on a machine without `membarrier`.
#[test]
fn the_owner_enters_where_the_barrier_is_an_instruction() {
    let pair = Pair::new([0; 2]);
    let number = pair.owner.load(Ordering::Relaxed) & !NEEDS_BARRIER;
    pair.owner.store(number | NEEDS_BARRIER, Ordering::Relaxed);
    assert!(pair.try_enter().is_none());
    let inside = pair.enter().expect("the owner");
    assert!(pair.enter().is_none() && pair.lock().is_none() && !pair.release());
    drop(inside);
    assert!(pair.lock().is_some() && pair.enter().is_some() && pair.is_owner());
    thread::scope(|scope| {
        let other = scope.spawn(|| pair.enter().is_none() && pair.lock().is_some());
        assert!(other.join().unwrap());
    });
    assert!(pair.release() && pair.enter().is_none() && pair.lock().is_some());
}

#[test]
fn other_threads_cannot_enter_and_can_lock_once_the_owner_has_ended() {
    for releases in [false, true] {
        let pair = thread::spawn(move || {
            let pair = Pair::new([0; 2]);
            add(&mut pair.enter().expect("the owner"));
            assert!(!releases || pair.release() && pair.enter().is_none());
            pair
        })
        .join()
        .unwrap();
        assert!(pair.enter().is_none() && !pair.release() && !pair.is_owner());
        add(&mut pair.lock().expect("no other thread"));
        assert_eq!(*pair.lock().unwrap(), [2; 2]);
    }
}

#[test]
fn a_panic_inside_frees_the_lock() {
    let pair = Pair::new([0; 2]);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _inside = pair.enter();
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(panicked.is_err());
    assert!(pair.enter().is_some());
}

/// In a forked child, the owner is the thread that called `fork`, or does not exist. Neither waits for ever.
#[cfg(target_os = "linux")]
#[test]
fn a_forked_child_waits_for_no_thread_that_does_not_exist() {
    /// Runs in a forked child, which locks and allocates nothing.
    fn holds_in_a_child(check: impl FnOnce() -> bool) {
        // SAFETY: the child ends without running anything of the parent.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(20);
                libc::_exit(i32::from(!check()));
            }
            let mut status = -1;
            libc::waitpid(child, &raw mut status, 0);
            status
        };
        assert_eq!(status, 0);
    }
    let own = Pair::new([0; 2]);
    holds_in_a_child(|| own.enter().is_some() && own.lock().is_some());
    let (inside, over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel::<Arc<Pair>>();
        let (own, inside, over) = (&own, &inside, &over);
        scope.spawn(move || {
            let pair = Arc::new(Pair::new([0; 2]));
            sender.send(pair.clone()).unwrap();
            let _inside = pair.enter().expect("the owner");
            let _taken = own.lock().expect("the owner is out");
            inside.store(true, Ordering::Relaxed);
            while !over.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        });
        let other = receiver.recv().unwrap();
        while !inside.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        holds_in_a_child(|| other.lock().is_none());
        holds_in_a_child(|| own.enter().is_none() && own.lock().is_none());
        over.store(true, Ordering::Relaxed);
    });
    assert!(own.enter().is_some());
}
