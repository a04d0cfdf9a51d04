//! The state of a program over pools: what it owns, and what the model expects.

use std::collections::BTreeSet;
use std::time::Duration;

use cuguard::memory::PoolBuilder;
use cuguard::{Context, DeviceBuffer, Error, Pool, ResourceKind, Stream};

use super::contents::{Contents, Inspector};
use super::model::Model;
use super::step::How;
use crate::mismatch::{Check, Stop, ensure, ensure_eq};
use crate::report::File;

/// The most that all blocks of a program occupy: beyond it, blocks are small.
const MOST: u64 = 256 << 20;

/// Counts of what programs did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolOutcome {
    /// Steps.
    pub steps: u64,
    /// Blocks that were allocated.
    pub allocations: u64,
    /// The bytes of those.
    pub bytes: u64,
    /// Allocations that the limit of a pool refused.
    pub refused: u64,
    /// Compactions that the program asked for.
    pub compactions: u64,
    /// Pages that were merged into others, in compactions and in recovery.
    pub merged: u64,
    /// Of those, in recovery: an allocation ran short of memory.
    pub merged_in_recovery: u64,
    /// Comparisons of all bytes of all blocks.
    pub comparisons: u64,
    /// Blocks that were released with `into_raw`.
    pub escaped: u64,
    /// Panics that were caught.
    pub panics: u64,
    /// Checks by kernels.
    pub kernels: u64,
}

/// A pool that the program has created.
pub struct PoolSlot {
    /// Unique in a program.
    pub id: u64,
    /// None for the pool that all buffers of the context come from.
    pub guard: Option<Pool>,
    pub limit: u64,
    /// Pages merged so far.
    pub merged: u64,
}

/// A buffer and what it holds.
pub struct Block {
    pub buffer: DeviceBuffer<u8>,
    pub contents: Contents,
    pub pool: u64,
}

impl Block {
    pub fn address(&self) -> u64 {
        self.buffer.as_view().as_device_ptr().as_raw()
    }
}

/// A block whose ownership was released.
pub struct Raw {
    pub address: u64,
    pub len: usize,
    pub contents: Contents,
    pub pool: u64,
}

pub struct PoolWorld {
    pub context: Option<Context>,
    pub report: File,
    pub pools: Vec<PoolSlot>,
    pub streams: Vec<Stream>,
    pub blocks: Vec<Block>,
    pub raws: Vec<Raw>,
    pub model: Model,
    pub inspector: Inspector,
    pub outcome: PoolOutcome,
    next: u32,
}

/// The limit and the settings of a pool, by a number. No decay, which would release memory at any time.
fn builder(number: u8) -> (PoolBuilder, u64) {
    let limits = [8, 16, 24, 48, 96, 192, 320, 1 << 20];
    let limit = limits[usize::from(number) % limits.len()] << 20;
    let builder = Pool::builder().decay(Duration::MAX).limit(limit);
    (builder.share_tails(number & 0x38 != 0), limit)
}

impl PoolWorld {
    pub fn new(begin: u8, simulated: bool) -> Check<Self> {
        let report = File::new();
        let mut context = Context::builder().dedicated().report(report.settings()?);
        let (of_context, limit) = builder(begin >> 1);
        if begin & 1 != 0 {
            context = context.pool(of_context);
        }
        let context = context.build()?;
        let mut world = Self {
            inspector: Inspector::new(&context, simulated)?,
            context: Some(context),
            report,
            pools: Vec::new(),
            streams: Vec::new(),
            blocks: Vec::new(),
            raws: Vec::new(),
            model: Model::default(),
            outcome: PoolOutcome::default(),
            next: 0,
        };
        if begin & 1 != 0 {
            let id = u64::from(world.number());
            world.pools.push(PoolSlot {
                id,
                guard: None,
                limit,
                merged: 0,
            });
        }
        world.new_pool(begin >> 1)?;
        for _ in 0..2 {
            world.new_stream()?;
        }
        Ok(world)
    }

    pub fn context(&self) -> &Context {
        self.context.as_ref().expect("open until the end")
    }

    /// A number that no other call returns: an identity, or a seed.
    pub fn number(&mut self) -> u32 {
        self.next += 1;
        self.next.wrapping_mul(0x85EB_CA6B)
    }

    pub fn new_pool(&mut self, number: u8) -> Check {
        let (builder, limit) = builder(number);
        let pool = builder.build(self.context())?;
        let id = u64::from(self.number());
        self.pools.push(PoolSlot {
            id,
            guard: Some(pool),
            limit,
            merged: 0,
        });
        Ok(())
    }

    pub fn new_stream(&mut self) -> Check {
        let stream = Stream::new(self.context())?;
        self.streams.push(stream);
        Ok(())
    }

    pub fn pick(&self, number: u16) -> Check<usize> {
        let count = self.blocks.len();
        let at = usize::from(number).checked_rem(count);
        at.ok_or(Stop::NothingFits)
    }

    pub fn stream(&self, number: u8) -> Check<&Stream> {
        let at = usize::from(number).checked_rem(self.streams.len());
        at.map(|at| &self.streams[at]).ok_or(Stop::NothingFits)
    }

    /// Allocates a block, and returns whether the pool had memory for it. The stream is one of the program's or, now and
    /// then, the default stream.
    pub fn allocate(&mut self, bytes: u32, pool: u8, stream: u8, how: How) -> Check<bool> {
        let at = usize::from(pool).checked_rem(self.pools.len());
        let at = at.ok_or(Stop::NothingFits)?;
        let mut len = bytes as usize;
        if self.model.total() + u64::from(bytes) > MOST {
            len = len % (64 << 10) + 1;
        }
        let how = match how {
            How::Copied if len > 256 << 10 => How::Uninitialized,
            How::Zeroed if len > 2 << 20 => How::Uninitialized,
            how => how,
        };
        let seed = self.number();
        let contents = match how {
            How::Zeroed => Contents::Filled(0),
            _ => Contents::Pattern { seed, at: 0 },
        };
        let slot = &self.pools[at];
        let (id, limit) = (slot.id, slot.limit);
        let streams = self.streams.get(usize::from(stream) % 8);
        let allocated = match (&slot.guard, streams) {
            (Some(pool), Some(stream)) => make(&pool.on(stream), len, how, contents),
            (Some(pool), None) => make(pool, len, how, contents),
            (None, Some(stream)) => make_on(stream, len, how, contents),
            (None, None) => make_plain(self.context(), len, how, contents),
        };
        let mut buffer = match allocated {
            Ok(buffer) => buffer,
            Err(Error::OutOfMemory(_)) => {
                self.outcome.refused += 1;
                ensure(self.model.may_refuse(id, limit, len as u64), || {
                    let used = self.model.used(id);
                    let stats = self.pools[at].guard.as_ref().map(Pool::stats);
                    format!(
                        "{len} bytes are refused by a limit of {limit} with {used} used: {stats:?}"
                    )
                })?;
                // The merged pages of the context's own pool are not known.
                if self.pools[at].guard.is_none() {
                    self.check_contents()?;
                }
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        let address = buffer.as_view().as_device_ptr().as_raw();
        self.model.allocated(address, len as u64, id)?;
        let contents = match how {
            How::Uninitialized => self.inspector.write(&mut buffer, seed)?,
            How::Copied => Contents::Pattern { seed, at: address },
            How::Zeroed => contents,
        };
        self.outcome.allocations += 1;
        self.outcome.bytes += len as u64;
        self.blocks.push(Block {
            buffer,
            contents,
            pool: id,
        });
        Ok(true)
    }

    /// Takes a block off the list, to be freed.
    pub fn take(&mut self, at: usize) -> Block {
        let block = self.blocks.swap_remove(at);
        self.model.freed(block.address());
        block
    }

    /// Compares all blocks, and the first bytes of those that escaped.
    pub fn check_contents(&mut self) -> Check {
        self.outcome.comparisons += 1;
        for block in &self.blocks {
            self.inspector.check(&block.buffer, block.contents)?;
        }
        if let Some(context) = &self.context {
            for raw in &self.raws {
                // SAFETY: the memory is not freed before it is owned again, and nothing writes to it meanwhile.
                let view = unsafe { DeviceBuffer::<u8>::borrow_raw(context, raw.address, raw.len) };
                let first = 0..raw.len.min(32);
                let mut expected = Vec::new();
                super::contents::expected(raw.contents, &first, &mut expected);
                let seen = view.slice(first)?.to_vec()?;
                ensure_eq("the first bytes of escaped memory", &seen, &expected)?;
            }
        }
        Ok(())
    }

    /// What the blocks of all pools occupy, those of dropped pools too.
    pub fn used(&self) -> u64 {
        let pools: BTreeSet<u64> = self.blocks.iter().map(|block| block.pool).collect();
        pools.iter().map(|pool| self.model.used(*pool)).sum()
    }

    /// Compares the figures of the context and of the pools with the model's.
    pub fn check_figures(&mut self) -> Check {
        let Some(context) = &self.context else {
            return Ok(());
        };
        let totals = context.totals(ResourceKind::Pooled);
        let live = self.model.live();
        ensure_eq("live blocks", (totals.count, totals.bytes), live)?;
        let bytes = live.1 + self.inspector.bytes();
        ensure_eq("live bytes", context.live_bytes(), bytes)?;
        let guards = self.pools.iter().filter(|slot| slot.guard.is_some());
        let (pools, guards) = (
            context.totals(ResourceKind::Pool).count,
            guards.count() as u64,
        );
        ensure_eq("pools with a guard", pools, guards)?;
        let mut merged = 0;
        for slot in &mut self.pools {
            let Some(pool) = &slot.guard else { continue };
            let stats = pool.stats();
            ensure_eq("bytes in use", stats.used, self.model.used(slot.id))?;
            let parts = stats.used + stats.cached + stats.idle;
            ensure(
                parts <= stats.held && stats.held <= slot.limit && stats.held % (2 << 20) == 0,
                || format!("a limit of {}: {stats:?}", slot.limit),
            )?;
            merged += stats.merged - slot.merged;
            slot.merged = stats.merged;
        }
        if merged > 0 {
            self.outcome.merged += merged;
            self.outcome.merged_in_recovery += merged;
            self.check_contents()?;
        }
        Ok(())
    }
}

/// The values of a new block, if it is copied.
fn values(len: usize, contents: Contents) -> Vec<u8> {
    let mut values = Vec::new();
    super::contents::expected(contents, &(0..len), &mut values);
    values
}

fn make(
    source: &impl cuguard::memory::Source,
    len: usize,
    how: How,
    contents: Contents,
) -> cuguard::Result<DeviceBuffer<u8>> {
    match how {
        // SAFETY: only what was written is read.
        How::Uninitialized => unsafe { DeviceBuffer::uninitialized(source, len) },
        How::Zeroed => DeviceBuffer::zeroed(source, len),
        How::Copied => DeviceBuffer::from_slice(source, &values(len, contents)),
    }
}

fn make_on(
    stream: &Stream,
    len: usize,
    how: How,
    contents: Contents,
) -> cuguard::Result<DeviceBuffer<u8>> {
    match how {
        // SAFETY: only what was written is read.
        How::Uninitialized => unsafe { DeviceBuffer::uninitialized(stream, len) },
        How::Zeroed => DeviceBuffer::zeroed(stream, len),
        How::Copied => DeviceBuffer::from_slice(stream, &values(len, contents)),
    }
}

fn make_plain(
    context: &Context,
    len: usize,
    how: How,
    contents: Contents,
) -> cuguard::Result<DeviceBuffer<u8>> {
    match how {
        // SAFETY: only what was written is read.
        How::Uninitialized => unsafe { DeviceBuffer::uninitialized(context, len) },
        How::Zeroed => DeviceBuffer::zeroed(context, len),
        How::Copied => DeviceBuffer::from_slice(context, &values(len, contents)),
    }
}
