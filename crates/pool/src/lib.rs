//! A device memory pool over virtual memory, for `cuguard`: blocks are stitched out of pages in any order, and
//! half-empty pages are merged behind their addresses.
//!
//! The driver is a trait, [`Driver`]: this crate knows no CUDA types and contains no unsafe code.
//!
//! # Frames, windows, ranges, slots
//!
//! ```text
//! addresses   |  range A: 5 MiB     |      |  range B: 3 MiB  |     |  8 windows of one slot frame    |
//!             | page  | page  |win. |      | win.|   page     |     | win. | win. | win. | … | win.  |
//!                 │       │      ╲            ╱       │               ╲     ╲      │        ╱
//! physical    [ handle][handle]   [  frame   ]     [handle]            [         frame       ]
//!              2 MiB or 64 MiB    [A's  |B's ]                         [s4|s1|s7|s1|s2|s8|s4|…]
//!                                 [tail |head]                          slots of random windows
//! ```
//!
//! - A **frame** is a physical handle of 2 MiB and a mask of its granules of 16 KiB that are in use.
//! - A **window** is a page of addresses that is mapped onto a frame. Several windows share one frame if their masks
//!   are disjoint. An offset in a window is the same offset in its frame, so a window can be moved to any frame in
//!   which its granules are free, and no address changes. Merging is made of such moves: [`Central::compact`].
//! - A **range** is a block of 256 KiB or more: its own run of pages, and one window for the part that does not fill a
//!   page. This window is the last page, used at its front (a tail), or the first, used at its end (a head), so that
//!   one of each can share a frame. A block below 2 MiB is one window, and its granules are anywhere in it.
//! - A **slot** is a block below 256 KiB. The slots of a frame are dealt at random to eight windows, so that each
//!   window has few blocks and fits other frames when some of them are freed.
//!
//! # Where memory goes
//!
//! ```text
//!           allocate                       free                       point complete
//! driver ────────────▶ live ────────────────────────▶ cached, of a stream ─────────▶ cached, of no stream
//!    ▲                  ▲  ▲       same stream              │                                  │
//!    │                  │  └────────────────────────────────┘       any stream, same size      │
//!    │                  ├──────────────────────────────────────────────────────────────────────┤
//!    │                  │  similar size, resized: only what differs is unmapped and mapped     │
//!    │                  ├──────────────────────────────────────────────────────────────────────┤
//!    │ trim, decay,     │  any size                        unmapped, before the pool grows     │
//!    └──────────────── idle handles, free granules, vacant windows ◀───────────────────────────┘
//! ```
//!
//! # Example
//!
//! A driver without a device, which only counts:
//!
//! ```
//! use cuguard_pool::{Central, Driver, Settings};
//! use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//!
//! #[derive(Default)]
//! struct Counter(AtomicU64);
//!
//! impl Driver for Counter {
//!     type Error = ();
//!     type Stream = u64;
//!     type Point = ();
//!
//!     fn stream_id(stream: &u64) -> u64 { *stream }
//!     fn is_out_of_memory(_: &()) -> bool { false }
//!     fn reserve(&self, _bytes: u64) -> Result<u64, ()> { Ok(1 << 40) }
//!     fn create(&self, _bytes: u64) -> Result<u64, ()> { Ok(self.0.fetch_add(1, Relaxed)) }
//!     // …
//! #   fn unreserve(&self, _: u64, _: u64) -> Result<(), ()> { Ok(()) }
//! #   fn release(&self, _: u64) -> Result<(), ()> { Ok(()) }
//! #   fn map(&self, _: u64, _: u64, _: u64) -> Result<(), ()> { Ok(()) }
//! #   fn unmap(&self, _: u64, _: u64) -> Result<(), ()> { Ok(()) }
//! #   fn set_access(&self, _: u64, _: u64) -> Result<(), ()> { Ok(()) }
//! #   fn copy(&self, _: u64, _: u64, _: u64) -> Result<(), ()> { Ok(()) }
//! #   fn wait_for_copies(&self) -> Result<(), ()> { Ok(()) }
//! #   fn record(&self, _: &u64) -> Result<(), ()> { Ok(()) }
//! #   fn is_complete(&self, _: &()) -> Result<bool, ()> { Ok(true) }
//! }
//!
//! let pool = Central::new(Counter::default(), Settings::default());
//! let stream = 1;
//! // Two blocks of one and a half pages: three pages, not four.
//! let one = pool.allocate(&stream, 3 << 20).unwrap();
//! let two = pool.allocate(&stream, 3 << 20).unwrap();
//! assert_eq!(pool.stats().held, 6 << 20);
//! // Freed, a block is allocated again at once on the same stream.
//! pool.free(&stream, two);
//! assert_eq!(pool.allocate(&stream, 3 << 20).unwrap(), two);
//! # pool.free(&stream, one);
//! pool.destroy().unwrap();
//! ```

#![forbid(unsafe_code)]

mod addresses;
mod bits;
mod cache;
mod central;
mod driver;
mod engine;
mod error;
mod frames;
mod handles;
mod hash;
mod index;
mod mask;
mod pool;
mod random;
mod ranges;
mod settings;
mod shelf;
mod size;
mod slab;
mod slots;
mod state;
mod stats;
mod streams;
mod windows;

pub use cache::ThreadCache;
pub use central::Central;
pub use driver::Driver;
pub use error::PoolError;
pub use pool::Pool;
pub use settings::Settings;
pub use stats::{Compacted, PageUse, Stats, Usage};

/// A block of a pool: its address and what it occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// The device address of its first byte.
    pub address: u64,
    /// What it occupies: the size that was asked for, rounded up.
    pub bytes: u64,
}
