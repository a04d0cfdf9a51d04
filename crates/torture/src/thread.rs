//! Two worker threads, so that a step on another thread starts none.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};

type Job = Box<dyn FnOnce() + Send>;

static WORKERS: LazyLock<[Mutex<Sender<Job>>; 2]> = LazyLock::new(|| [worker(1), worker(2)]);

fn worker(number: u8) -> Mutex<Sender<Job>> {
    let (jobs, queue) = channel::<Job>();
    std::thread::Builder::new()
        .name(format!("torture {number}"))
        .spawn(move || queue.into_iter().for_each(|job| job()))
        .expect("a thread can be started");
    Mutex::new(jobs)
}

/// Moves a value to another thread (1 or 2), works on it there, and moves it back.
pub fn on_thread<T: Send + 'static, R: Send + 'static>(
    number: u8,
    mut value: T,
    work: impl FnOnce(&mut T) -> R + Send + 'static,
) -> (T, std::thread::Result<R>) {
    let (sender, receiver) = channel();
    let job = move || {
        let result = catch_unwind(AssertUnwindSafe(|| work(&mut value)));
        // The caller waits for it.
        let _ = sender.send((value, result));
    };
    let worker = &WORKERS[usize::from(number - 1) % 2];
    worker
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send(Box::new(job))
        .expect("the worker never ends");
    receiver.recv().expect("the worker does each job")
}
