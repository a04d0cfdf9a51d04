//! Tests in a file that has the name of the crate: functions have the names of tests of others.

use std::sync::mpsc::{sync_channel, SyncSender};
use std::sync::OnceLock;

mod helper {
    pub fn work() {
        leaky_crate::allocate(2 << 20);
    }
}

#[test]
fn helper() {}

#[test]
fn load() {}

#[test]
fn other() {
    leaky_crate::load();
}

#[test]
fn runs_a_helper() {
    std::thread::spawn(helper::work).join().unwrap();
}

#[test]
fn runs_the_crate() {
    std::thread::spawn(leaky_crate::load).join().unwrap();
}

/// Allocates on a thread that the first test starts, without a name.
fn on_worker(bytes: usize) {
    static WORKER: OnceLock<SyncSender<(usize, SyncSender<()>)>> = OnceLock::new();
    let worker = WORKER.get_or_init(|| {
        let (sender, jobs) = sync_channel::<(usize, SyncSender<()>)>(1);
        std::thread::spawn(move || {
            for (bytes, done) in jobs {
                leaky_crate::allocate(bytes);
                done.send(()).unwrap();
            }
        });
        sender
    });
    let (done, is_done) = sync_channel(1);
    worker.send((bytes, done)).unwrap();
    is_done.recv().unwrap();
}

static FIRST: OnceLock<()> = OnceLock::new();

#[test]
fn a_clean() {
    on_worker(0x1000);
    FIRST.set(()).unwrap();
}

#[test]
fn z_leaks() {
    FIRST.wait();
    on_worker(9 << 20);
}
