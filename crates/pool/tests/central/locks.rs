//! What is done without the pool's lock.

use super::fake::{Error, Fake, MIB, Point};
use cuguard_pool::{Central, Driver, Settings};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// A fake whose `create` waits, when it is told to, until the test lets it go on.
#[derive(Clone)]
struct Slow {
    fake: Fake,
    #[expect(clippy::type_complexity, reason = "a pair of channels")]
    turns: Arc<Mutex<Option<(Sender<()>, Receiver<()>)>>>,
}

/// A stream that looks at the pool when it is dropped, as one does that ends in its drop.
struct Watching {
    id: u64,
    pool: OnceLock<Weak<Central<Slow>>>,
    dropped: Sender<u64>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.get().and_then(Weak::upgrade) {
            let _ = self.dropped.send(pool.stats().used);
        }
    }
}

impl Driver for Slow {
    type Error = Error;
    type Stream = Arc<Watching>;
    type Point = Point;

    fn stream_id(stream: &Self::Stream) -> u64 {
        stream.id
    }

    fn is_out_of_memory(error: &Error) -> bool {
        Fake::is_out_of_memory(error)
    }

    fn reserve(&self, bytes: u64) -> Result<u64, Error> {
        self.fake.reserve(bytes)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<(), Error> {
        self.fake.unreserve(address, bytes)
    }

    fn create(&self, bytes: u64) -> Result<u64, Error> {
        if let Some((inside, go_on)) = self.turns.lock().unwrap().take() {
            inside.send(()).unwrap();
            go_on.recv().unwrap();
        }
        self.fake.create(bytes)
    }

    fn release(&self, handle: u64) -> Result<(), Error> {
        self.fake.release(handle)
    }

    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), Error> {
        self.fake.map(address, bytes, handle)
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), Error> {
        self.fake.unmap(address, bytes)
    }

    fn set_access(&self, address: u64, bytes: u64) -> Result<(), Error> {
        self.fake.set_access(address, bytes)
    }

    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), Error> {
        self.fake.copy(to, from, bytes)
    }

    fn wait_for_copies(&self) -> Result<(), Error> {
        self.fake.wait_for_copies()
    }

    fn record(&self, stream: &Self::Stream) -> Result<Point, Error> {
        self.fake.record(&stream.id)
    }

    fn is_complete(&self, point: &Point) -> Result<bool, Error> {
        self.fake.is_complete(point)
    }
}

fn pool() -> (Arc<Central<Slow>>, Slow) {
    let driver = Slow {
        fake: Fake::new(1 << 30),
        turns: Arc::default(),
    };
    (
        Arc::new(Central::new(driver.clone(), Settings::default())),
        driver,
    )
}

fn stream(id: u64, pool: &Arc<Central<Slow>>) -> (Arc<Watching>, Receiver<u64>) {
    let (dropped, receiver) = channel();
    let pool = OnceLock::from(Arc::downgrade(pool));
    (Arc::new(Watching { id, pool, dropped }), receiver)
}

#[test]
fn a_free_does_not_wait_for_calls_of_the_driver() {
    let (pool, driver) = pool();
    let (stream, _dropped) = stream(1, &pool);
    let block = pool.allocate(&stream, 4 * MIB).unwrap();
    let (inside, is_inside) = channel();
    let (let_go_on, go_on) = channel();
    *driver.turns.lock().unwrap() = Some((inside, go_on));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| pool.allocate(&stream, 100 * MIB).unwrap());
        is_inside.recv().unwrap();
        // The other thread holds the lock, in `create`, until it is let go on.
        pool.free(&stream, block);
        pool.free_many(&stream, 4 * MIB, &[]);
        let_go_on.send(()).unwrap();
        other.join().unwrap();
    });
    let stats = pool.stats();
    assert_eq!((stats.used, stats.cached), (100 * MIB, 4 * MIB));
    assert_eq!(pool.allocate(&stream, 4 * MIB).unwrap(), block);
    pool.destroy().unwrap();
}

#[test]
fn streams_are_dropped_without_the_lock() {
    let (pool, _driver) = pool();
    let (first, dropped) = stream(1, &pool);
    let block = pool.allocate(&first, 4 * MIB).unwrap();
    pool.free(&first, block);
    // The pool has the last clone, until the point is recorded.
    drop(first);
    assert!(dropped.try_recv().is_err());
    let (second, _) = stream(2, &pool);
    assert_eq!(pool.allocate(&second, 4 * MIB).unwrap(), block);
    assert_eq!(dropped.try_recv(), Ok(4 * MIB));
    pool.destroy().unwrap();
}
