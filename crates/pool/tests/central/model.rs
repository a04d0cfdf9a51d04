//! A pool on a fake card, and what must be true of it.

use super::fake::{Error, Fake, PAGE, Stream};
use cuguard_pool::{Block, Central, PoolError, Settings};

/// A live block and the tag that is written all over it.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    pub block: Block,
    pub stream: Stream,
    pub tag: u64,
    pub pinned: bool,
}

pub struct Model {
    pub fake: Fake,
    pub pool: Central<Fake>,
    pub live: Vec<Live>,
    /// The distance of the bytes that are written and checked in a block's first and last page.
    pub step: u64,
    tags: u64,
}

impl Model {
    pub fn new(card: u64, settings: Settings) -> Self {
        let fake = Fake::new(card);
        Self {
            pool: Central::new(fake.clone(), settings),
            fake,
            live: Vec::new(),
            step: 16 << 10,
            tags: 0,
        }
    }

    /// Allocates a block and writes its tag.
    pub fn allocate(&mut self, stream: Stream, bytes: u64) -> Result<Block, PoolError<Error>> {
        let block = self.pool.allocate(&stream, bytes)?;
        assert!(block.bytes >= bytes);
        self.enter(stream, block);
        Ok(block)
    }

    /// Allocates up to `count` blocks at once.
    pub fn allocate_many(
        &mut self,
        stream: Stream,
        bytes: u64,
        count: usize,
    ) -> Result<usize, PoolError<Error>> {
        let mut addresses = Vec::new();
        let got = self
            .pool
            .allocate_many(&stream, bytes, count, &mut addresses)?;
        assert!(got >= 1 && got <= count && got == addresses.len());
        let bytes = Central::<Fake>::rounded(bytes);
        for address in addresses {
            self.enter(stream, Block { address, bytes });
        }
        Ok(got)
    }

    fn enter(&mut self, stream: Stream, block: Block) {
        self.fake.allocated(stream, block.address, block.bytes);
        self.tags += 1;
        let live = Live {
            block,
            stream,
            tag: self.tags,
            pinned: false,
        };
        for place in places(block, self.step) {
            self.fake.write(place, live.tag);
        }
        self.live.push(live);
    }

    /// Checks a block and frees it on a stream, without a call of the driver.
    pub fn free(&mut self, index: usize, stream: Stream) {
        let live = self.live.swap_remove(index);
        self.check_block(&live);
        if live.pinned {
            assert!(self.pool.unpin(live.block.address));
        }
        self.fake.freed(stream, live.block.address);
        self.fake.forbid_calls(true);
        self.pool.free(&stream, live.block);
        self.fake.forbid_calls(false);
    }

    /// Frees the blocks for which `chosen` is true, given their number in the order of allocation.
    pub fn free_where(&mut self, stream: Stream, mut chosen: impl FnMut(usize) -> bool) -> u64 {
        let mut freed = 0;
        for (number, live) in std::mem::take(&mut self.live).into_iter().enumerate() {
            if chosen(number) {
                freed += live.block.bytes;
                self.fake.freed(stream, live.block.address);
                self.pool.free(&stream, live.block);
            } else {
                self.live.push(live);
            }
        }
        freed
    }

    /// Compacts as a caller must: with nothing in flight.
    pub fn compact(&mut self, wanted: u64) -> Result<cuguard_pool::Compacted, PoolError<Error>> {
        self.fake.complete_all();
        self.fake.quiet(true);
        let result = self.pool.compact(wanted);
        self.fake.quiet(false);
        result
    }

    /// Every byte of every block is what was written, and the books are right.
    pub fn check(&self) {
        for live in &self.live {
            self.check_block(live);
        }
        let stats = self.pool.stats();
        assert_eq!(stats.held, self.fake.held());
        assert_eq!(
            stats.used,
            self.live.iter().map(|live| live.block.bytes).sum::<u64>()
        );
        assert!(stats.used + stats.idle <= stats.held, "{stats:?}");
        assert_eq!(stats.wrong_frees, 0);
    }

    /// No two blocks have a byte of physical memory in common.
    pub fn check_overlap(&self) {
        let mut extents: Vec<_> = self
            .live
            .iter()
            .flat_map(|live| {
                self.fake
                    .extents(live.block.address, live.block.bytes)
                    .expect("a block without access")
            })
            .collect();
        extents.sort_unstable();
        for pair in extents.windows(2) {
            let ((one, start, bytes), (two, next, _)) = (pair[0], pair[1]);
            assert!(
                one != two || start + bytes <= next,
                "two blocks share {one}: {pair:?}"
            );
        }
    }

    fn check_block(&self, live: &Live) {
        for place in places(live.block, self.step) {
            assert_eq!(
                self.fake.read(place),
                Some(live.tag),
                "{live:?} at {place:#x}"
            );
        }
    }

    /// Destroys the pool; nothing is left.
    pub fn destroy(self) {
        self.fake.complete_all();
        self.fake.quiet(true);
        self.pool.destroy().expect("destroy");
        let stats = self.pool.stats();
        assert_eq!(
            (stats.held, stats.used, stats.cached, stats.free_slots),
            (0, 0, 0, 0),
            "{stats:?}"
        );
        assert_eq!(
            (stats.frames, stats.windows, stats.ranges, stats.reserved),
            (0, 0, 0, 0),
            "{stats:?}"
        );
        assert_eq!(stats.stuck_windows, 0, "{stats:?}");
        self.fake.assert_empty();
    }
}

/// Addresses in a block that are written and checked: both ends, each step of the first and the last page, and each page.
fn places(block: Block, step: u64) -> impl Iterator<Item = u64> {
    let Block { address, bytes } = block;
    let end = address + bytes;
    let granules = |from: u64, to: u64| (from..to).step_by(step as usize);
    let first = granules(address, end.min(address + PAGE));
    let last = granules(end.saturating_sub(PAGE).max(address + PAGE).min(end), end);
    let pages = (address + PAGE..end).step_by(PAGE as usize);
    first.chain(last).chain(pages).chain([end - 256])
}

/// Numbers for the tests: xorshift64.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}
