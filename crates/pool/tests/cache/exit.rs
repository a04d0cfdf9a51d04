//! A process that ends while its threads use the pool: in a real child process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;

use cuguard_pool::{Pool, Settings};

use super::driver::FakeDriver;
use super::fill_cache;

const CHILD: &str = "CUGUARD_POOL_TEST_CHILD";

/// Never dropped, as the pool of a context that is not dropped.
static POOL: LazyLock<Arc<Pool<FakeDriver>>> =
    LazyLock::new(|| Arc::new(Pool::new(FakeDriver::new(u64::MAX), Settings::default())));

#[test]
fn a_process_ends_while_threads_use_the_pool() {
    if std::env::var_os(CHILD).is_some() {
        end_while_threads_run();
    }
    let name = "exit::a_process_ends_while_threads_use_the_pool";
    for _ in 0..5 {
        let mut child = cuguard_testing::test_command(name);
        let output = child.env(CHILD, "1").output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{text}");
    }
}

fn end_while_threads_run() -> ! {
    static ROUNDS: AtomicU64 = AtomicU64::new(0);
    for stream in 1..4 {
        thread::spawn(move || {
            loop {
                fill_cache(&POOL, stream);
                // Short-lived threads flush their caches at any moment, also during the exit.
                let _ = thread::spawn(move || fill_cache(&POOL, stream)).join();
                ROUNDS.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    fill_cache(&POOL, 1);
    while ROUNDS.load(Ordering::Relaxed) < 50 {
        POOL.flush();
    }
    // This thread's caches are flushed by the exit itself.
    std::process::exit(7)
}
