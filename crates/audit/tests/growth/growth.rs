//! Programs in Rust that grow and programs that do not, by name.

use std::collections::VecDeque;
use std::sync::Mutex;

unsafe extern "C" {
    fn cuInit(flags: u32) -> i32;
    fn cuCtxCreate_v2(context: *mut *mut u8, flags: u32, device: i32) -> i32;
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> i32;
    fn cuMemFree_v2(address: u64) -> i32;
}

struct Buffer(u64);

impl Buffer {
    fn new(bytes: usize) -> Self {
        let mut address = 0;
        // SAFETY: the address can be written to.
        assert_eq!(unsafe { cuMemAlloc_v2(&mut address, bytes) }, 0);
        Self(address)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated, and freed once.
        unsafe { cuMemFree_v2(self.0) };
    }
}

static KEPT: Mutex<Vec<Buffer>> = Mutex::new(Vec::new());

fn work() {
    drop(Buffer::new(100_000));
}

fn grows_vector() {
    for _ in 0..60 {
        work();
        KEPT.lock().unwrap().push(Buffer::new(4096));
    }
}

fn grows_forgotten() {
    for _ in 0..20 {
        work();
        std::mem::forget(Buffer::new(4096));
    }
}

fn steady_queue() {
    let mut queue = VecDeque::new();
    for _ in 0..200 {
        work();
        queue.push_back(Buffer::new(4096));
        if queue.len() > 10 {
            queue.pop_front();
        }
    }
}

fn steady_weights() {
    KEPT.lock().unwrap().extend((0..30).map(|_| Buffer::new(4096)));
    (0..100).for_each(|_| work());
}

fn main() {
    let programs: [(&str, fn()); 4] = [
        ("grows_vector", grows_vector),
        ("grows_forgotten", grows_forgotten),
        ("steady_queue", steady_queue),
        ("steady_weights", steady_weights),
    ];
    let name = std::env::args().nth(1);
    for (program, run) in programs {
        match &name {
            None => println!("{program}"),
            Some(name) if name == program => {
                let mut context = std::ptr::null_mut();
                // SAFETY: the context can be written to.
                assert_eq!(unsafe { cuInit(0) | cuCtxCreate_v2(&mut context, 0, 0) }, 0);
                return run();
            }
            Some(_) => {}
        }
    }
}
