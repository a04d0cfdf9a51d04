//! The steps.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use cuguard::driver::api;
use cuguard::{DeviceBuffer, Error, Stream};

use super::contents::{Contents, WHOLE};
use super::step::{How, PoolAction};
use super::world::{Block, PoolWorld, Raw};
use crate::mismatch::{Check, Stop, ensure, ensure_eq};

/// The largest block that is filled or cloned: the simulated GPU copies on the host.
const MOST_FILLED: usize = 2 << 20;

/// How long a stream is kept busy.
const DELAY: Duration = Duration::from_micros(300);

unsafe extern "C" fn delay(_: *mut c_void) {
    std::thread::sleep(DELAY);
}

unsafe extern "C" fn drop_block(block: *mut c_void) {
    // SAFETY: from `Box::into_raw` in `free_in_host_function`, once.
    drop(unsafe { Box::from_raw(block.cast::<Block>()) });
}

/// A driver call that must succeed.
fn called(what: &str, code: cuguard::driver::sys::CUresult) -> Check {
    ensure(code.is_success(), || format!("{what}: {code}"))
}

impl PoolWorld {
    /// Does a step. Where nothing fits its numbers, it does nothing.
    pub fn step(&mut self, action: PoolAction) -> Check {
        match self.act(action) {
            Err(Stop::NothingFits) => Ok(()),
            done => done,
        }
    }

    fn act(&mut self, action: PoolAction) -> Check {
        match action {
            PoolAction::Allocate(bytes, pool, stream, how) => {
                self.allocate(bytes, pool, stream, how).map(drop)
            }
            PoolAction::Burst(bytes, count, pool, stream) => {
                for _ in 0..count {
                    if !self.allocate(bytes, pool, stream, How::Uninitialized)? {
                        break;
                    }
                }
                Ok(())
            }
            PoolAction::Free(at) => {
                let at = self.pick(at)?;
                self.take(at).buffer.close().map_err(Stop::from)
            }
            PoolAction::FreeEvery(every, first) => {
                let mut at = usize::from(first % every);
                while at < self.blocks.len() {
                    // The last one takes its place, and stays.
                    drop(self.take(at));
                    at += usize::from(every) - 1;
                }
                Ok(())
            }
            PoolAction::FreeInHostFunction(at, stream) => self.free_in_host_function(at, stream),
            PoolAction::Write(at) => {
                let (at, seed) = (self.pick(at)?, self.number());
                let block = &mut self.blocks[at];
                block.contents = self.inspector.write(&mut block.buffer, seed)?;
                Ok(())
            }
            PoolAction::Fill(at, value) => {
                let at = self.pick(at)?;
                let block = &mut self.blocks[at];
                if block.buffer.len() <= MOST_FILLED {
                    block.buffer.fill(value)?;
                    block.contents = Contents::Filled(value);
                }
                Ok(())
            }
            PoolAction::Copy(to, from, free) => self.copy(to, from, free),
            PoolAction::Clone(at) => self.clone_block(at),
            PoolAction::UseAndFree(at, stream) => self.use_and_free(at, stream),
            PoolAction::Check(at) => {
                let block = &self.blocks[self.pick(at)?];
                self.inspector.check(&block.buffer, block.contents)
            }
            PoolAction::IntoRaw(at) => {
                let at = self.pick(at)?;
                let block = self.blocks.swap_remove(at);
                self.outcome.escaped += 1;
                self.raws.push(Raw {
                    address: block.address(),
                    len: block.buffer.len(),
                    contents: block.contents,
                    pool: block.pool,
                });
                // The model has the address.
                let _ = block.buffer.into_raw();
                Ok(())
            }
            PoolAction::FromRaw(at, stream) => {
                let at = usize::from(at).checked_rem(self.raws.len());
                self.own(at.ok_or(Stop::NothingFits)?, stream)
            }
            PoolAction::Trim(pool) => self.trim(pool),
            PoolAction::Compact(pool) => self.compact(pool),
            PoolAction::Stream if self.streams.len() < 8 => self.new_stream(),
            PoolAction::EndStream(at) if !self.streams.is_empty() => {
                let at = usize::from(at) % self.streams.len();
                drop(self.streams.remove(at));
                Ok(())
            }
            PoolAction::Delay(stream) => {
                let stream = self.stream(stream)?;
                self.enqueue_delay(stream)
            }
            PoolAction::Synchronize => self.context().synchronize().map_err(Stop::from),
            PoolAction::Pool(number) if self.pools.len() < 4 => self.new_pool(number),
            PoolAction::EndPool(at) if !self.pools.is_empty() => {
                let at = usize::from(at) % self.pools.len();
                if self.pools[at].guard.is_some() {
                    drop(self.pools.remove(at));
                }
                Ok(())
            }
            PoolAction::Panic(bytes, at) => self.panic(bytes, at),
            PoolAction::Stream
            | PoolAction::EndStream(_)
            | PoolAction::Pool(_)
            | PoolAction::EndPool(_) => Ok(()),
        }
    }

    fn enqueue_delay(&self, stream: &Stream) -> Check {
        let _bound = self.context().make_current()?;
        let handle = stream.as_raw();
        // SAFETY: the stream is alive, and the function uses no argument.
        let code = unsafe { api::cuLaunchHostFunc(handle, Some(delay), std::ptr::null_mut()) };
        called("cuLaunchHostFunc", code)
    }

    fn free_in_host_function(&mut self, at: u16, stream: u8) -> Check {
        let at = self.pick(at)?;
        let handle = self.stream(stream)?.as_raw();
        let block = Box::into_raw(Box::new(self.take(at))).cast();
        let bound = self.context().make_current()?;
        // SAFETY: the stream is alive, and the function takes a boxed block.
        let code = unsafe { api::cuLaunchHostFunc(handle, Some(drop_block), block) };
        drop(bound);
        called("cuLaunchHostFunc", code)?;
        // The block may have been dropped during the first one, after it freed what was deferred.
        self.stream(stream)?.synchronize()?;
        self.stream(stream)?.synchronize().map_err(Stop::from)
    }

    /// Copies the first bytes of a block behind the last whole words of another.
    fn copy(&mut self, to: u16, from: u16, free: bool) -> Check {
        let (to, from) = (self.pick(to)?, self.pick(from)?);
        let count = self.blocks[to].buffer.len();
        let count = count.min(self.blocks[from].buffer.len()).min(WHOLE);
        if to == from || self.blocks[from].buffer.len() > WHOLE {
            return Err(Stop::NothingFits);
        }
        let start = (self.blocks[to].buffer.len() - count) / 4 * 4;
        // Off the list, so that both can be borrowed.
        let source = self.blocks.swap_remove(from);
        let to = if to == self.blocks.len() { from } else { to };
        let target = &mut self.blocks[to];
        let (range, contents) = (start..start + count, source.contents);
        let part = source.buffer.slice(..count)?;
        target.buffer.slice_mut(range.clone())?.copy_from(part)?;
        if free {
            self.model.freed(source.address());
            drop(source);
        } else {
            self.blocks.push(source);
        }
        let target = &self.blocks[to];
        let buffer = &target.buffer;
        self.inspector
            .check_copied(buffer, range, contents, 0..count)?;
        let seed = self.number();
        let target = &mut self.blocks[to];
        target.contents = self.inspector.write(&mut target.buffer, seed)?;
        Ok(())
    }

    fn clone_block(&mut self, at: u16) -> Check {
        let at = self.pick(at)?;
        let block = &self.blocks[at];
        let (len, pool) = (block.buffer.len(), block.pool);
        if len > MOST_FILLED {
            return Ok(());
        }
        let buffer = match block.buffer.try_clone() {
            Ok(buffer) => buffer,
            Err(Error::OutOfMemory(_)) => {
                // The pool may have no guard any more, and its limit is not known then.
                let limit = self.pools.iter().find(|slot| slot.id == pool);
                if let Some(slot) = limit {
                    let fits = !self.model.may_refuse(pool, slot.limit, len as u64);
                    ensure(!fits, || format!("a clone of {len} bytes is refused"))?;
                }
                self.outcome.refused += 1;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let clone = Block {
            buffer,
            contents: block.contents,
            pool,
        };
        self.model.allocated(clone.address(), len as u64, pool)?;
        self.outcome.allocations += 1;
        self.outcome.bytes += len as u64;
        self.blocks.push(clone);
        Ok(())
    }

    /// The write on the other stream is in flight when the block is freed: memory that is reused must not see it.
    fn use_and_free(&mut self, at: u16, stream: u8) -> Check {
        let at = self.pick(at)?;
        // The home of the block may still fill it.
        self.context().synchronize()?;
        self.enqueue_delay(self.stream(stream)?)?;
        let block = &self.blocks[at];
        let (address, len) = (block.address(), block.buffer.len().min(MOST_FILLED));
        let other = self.stream(stream)?;
        let bound = self.context().make_current()?;
        // SAFETY: the block is alive, and its free waits for this stream.
        let code = unsafe { api::cuMemsetD8Async(address, 0xEE, len, other.as_raw()) };
        drop(bound);
        called("cuMemsetD8Async", code)?;
        block.buffer.record_stream(other)?;
        drop(self.take(at));
        Ok(())
    }

    /// Takes ownership of a block that escaped.
    pub fn own(&mut self, at: usize, stream: u8) -> Check {
        // Work on its former home is not ordered with the next one.
        self.context().synchronize()?;
        let raw = self.raws.swap_remove(at);
        let buffer = match self.streams.get(usize::from(stream) % 8) {
            // SAFETY: released in `IntoRaw`, with this length, in this context. The device is idle.
            Some(on) => unsafe { DeviceBuffer::from_raw_on(on, raw.address, raw.len) },
            // SAFETY: as above.
            None => unsafe { DeviceBuffer::from_raw(self.context(), raw.address, raw.len) },
        };
        self.inspector.check(&buffer, raw.contents)?;
        self.blocks.push(Block {
            buffer,
            contents: raw.contents,
            pool: raw.pool,
        });
        Ok(())
    }

    fn trim(&mut self, pool: u8) -> Check {
        let at = usize::from(pool).checked_rem(self.pools.len());
        let slot = &self.pools[at.ok_or(Stop::NothingFits)?];
        let Some(pool) = &slot.guard else {
            return Ok(());
        };
        let before = pool.stats();
        let released = pool.trim()?;
        let after = pool.stats();
        ensure_eq("released bytes", released, before.held - after.held)?;
        ensure_eq("idle bytes after a trim", after.idle, 0)
    }

    fn compact(&mut self, pool: u8) -> Check {
        let at = usize::from(pool).checked_rem(self.pools.len());
        let slot = &mut self.pools[at.ok_or(Stop::NothingFits)?];
        let Some(pool) = &slot.guard else {
            return Ok(());
        };
        let before = pool.stats();
        let done = pool.compact()?;
        let after = pool.stats();
        ensure_eq("released bytes", done.released, before.held - after.held)?;
        ensure(after.used == 0 || after.held > 0, || format!("{after:?}"))?;
        ensure(after.used != 0 || after.held == 0, || {
            format!("an empty pool holds memory after it was compacted: {after:?}")
        })?;
        self.outcome.merged += after.merged - slot.merged;
        slot.merged = after.merged;
        self.outcome.compactions += 1;
        self.check_contents()
    }

    /// Unwinds through new blocks and one of the program's.
    fn panic(&mut self, bytes: u32, at: u16) -> Check {
        let count = self.blocks.len();
        let mut made = self.allocate(bytes, 0, 0, How::Uninitialized)?;
        made &= self.allocate(bytes % 5000 + 1, 1, 1, How::Zeroed)?;
        let mut taken = Vec::new();
        while self.blocks.len() > count {
            let last = self.blocks.len() - 1;
            taken.push(self.take(last));
        }
        if let Ok(at) = self.pick(at) {
            taken.push(self.take(at));
        }
        let unwound = catch_unwind(AssertUnwindSafe(move || {
            let _dropped = taken;
            // Without the panic hook, which prints.
            resume_unwind(Box::new(made));
        }));
        ensure(unwound.is_err(), || "no panic".to_owned())?;
        self.outcome.panics += 1;
        Ok(())
    }
}
