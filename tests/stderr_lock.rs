//! A context can be opened while another thread holds the lock of standard error.

use crate::support;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use cuguard::Context;

#[test]
fn opening_a_context_does_not_wait_for_stderr() {
    const TEST: &str = "opening_a_context_does_not_wait_for_stderr";
    if support::part().is_some() {
        // Prints which driver is used, before the lock is taken.
        cuguard::driver::load().unwrap();
        let lock = std::io::stderr().lock();
        let (opened, wait) = channel();
        thread::spawn(move || opened.send(Context::new(0).map(drop)).unwrap());
        let result = wait.recv_timeout(Duration::from_secs(20));
        drop(lock);
        result.expect("it waits for stderr").unwrap();
        return;
    }
    // Where the settings are read for the first time.
    let output = support::child(TEST, "open", &[("LEAK_REPORT", "0")]);
    support::succeeded(&output);
}
