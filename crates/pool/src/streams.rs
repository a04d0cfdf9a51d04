//! When memory freed on a stream may be used by others.
//!
//! Each stream has epochs. A free is of the stream's current epoch; recording a point ends the epoch, and when the point is
//! complete, everything freed in that epoch or before may be used by any stream. Points are recorded only when memory of one
//! stream is wanted by another, so a program with one stream records none.

use crate::driver::Driver;
use crate::hash::FastMap;
use std::collections::VecDeque;

/// Points of one stream that are in flight. With this many, the stream's later frees wait for the next point.
const POINTS: usize = 16;

/// When a block was freed: on which stream and in which epoch of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Freed {
    pub(crate) stream: u64,
    pub(crate) epoch: u64,
}

impl Freed {
    /// Not in use by any stream.
    pub(crate) const CLEAN: Self = Self {
        stream: u64::MAX,
        epoch: 0,
    };
}

struct Entry<D: Driver> {
    /// The current epoch.
    epoch: u64,
    /// The last complete epoch.
    done: u64,
    /// The stream, when something was freed in the current epoch. A clone is kept only that long: it may keep the
    /// stream from being destroyed.
    dirty: Option<D::Stream>,
    /// Points that are not known to be complete, and the epochs that they end.
    points: VecDeque<(u64, D::Point)>,
    /// No further free comes: removed when all points are complete.
    ended: bool,
    /// It ended, and the point was refused: what it freed is in use until the caller knows that its work is complete.
    unfinished: bool,
}

pub(crate) struct Streams<D: Driver> {
    entries: FastMap<Entry<D>>,
    /// The last epoch of any stream: numbers are not reused when a stream's entry is.
    last: u64,
    /// Streams that are not needed any more. They are dropped without the pool's lock: the drop of a stream may end it, and
    /// with that call the pool.
    pub(crate) unneeded: Vec<D::Stream>,
}

impl<D: Driver> Streams<D> {
    pub(crate) fn new() -> Self {
        Self {
            entries: FastMap::default(),
            last: 0,
            unneeded: Vec::new(),
        }
    }

    /// Notes a free on a stream.
    pub(crate) fn free_on(&mut self, stream: &D::Stream) -> Freed {
        let id = D::stream_id(stream);
        let entry = self.entries.entry(id).or_insert_with(|| {
            self.last += 1;
            Entry {
                epoch: self.last,
                done: self.last - 1,
                dirty: None,
                points: VecDeque::new(),
                ended: false,
                unfinished: false,
            }
        });
        if entry.dirty.is_none() {
            entry.dirty = Some(stream.clone());
            entry.ended = false;
        }
        Freed {
            stream: id,
            epoch: entry.epoch,
        }
    }

    /// Whether any stream may use the memory.
    pub(crate) fn is_done(&self, freed: Freed) -> bool {
        self.entries
            .get(&freed.stream)
            .is_none_or(|entry| freed.epoch <= entry.done)
    }

    /// Records a point on each stream on which something was freed since its last point, then looks which points are complete.
    /// A stream whose point is refused is tried again the next time.
    pub(crate) fn record_and_poll(&mut self, driver: &D) {
        self.poll(driver);
        for entry in self.entries.values_mut() {
            if entry.points.len() < POINTS {
                // The error is that of a stream that cannot be used; its memory stays its own.
                let _ = entry.record(driver, &mut self.last, &mut self.unneeded);
            }
        }
        self.poll(driver);
    }

    /// The stream is about to be destroyed: records its point now. Refused, the stream is not used any more all the same,
    /// and its memory waits for [`finish_ended`](Self::finish_ended).
    pub(crate) fn end(&mut self, driver: &D, stream: u64) -> Result<(), D::Error> {
        let Some(entry) = self.entries.get_mut(&stream) else {
            return Ok(());
        };
        let recorded = entry.record(driver, &mut self.last, &mut self.unneeded);
        entry.ended = true;
        if recorded.is_err() {
            entry.unfinished = true;
            self.unneeded.extend(entry.dirty.take());
        }
        self.poll(driver);
        recorded
    }

    /// The stream ends, and nothing can be recorded on it: its memory waits for [`finish_ended`](Self::finish_ended).
    pub(crate) fn lose(&mut self, stream: u64) {
        if let Some(entry) = self.entries.get_mut(&stream) {
            entry.ended = true;
            entry.unfinished |= entry.dirty.is_some();
            self.unneeded.extend(entry.dirty.take());
        }
    }

    /// All work of the stream is complete.
    pub(crate) fn finish(&mut self, stream: u64) {
        if let Some(entry) = self.entries.get_mut(&stream) {
            entry.finish(&mut self.last, &mut self.unneeded);
            if entry.ended {
                self.entries.remove(&stream);
            }
        }
    }

    /// Streams that ended and whose point was refused.
    pub(crate) fn unfinished(&self) -> Vec<u64> {
        let unfinished = self.entries.iter().filter(|(_, entry)| entry.unfinished);
        unfinished.map(|(&id, _)| id).collect()
    }

    /// All work of these streams is complete, if they have ended: nothing was enqueued on them since.
    pub(crate) fn finish_ended(&mut self, streams: &[u64]) {
        for &id in streams {
            if self.entries.get(&id).is_some_and(|entry| entry.ended) {
                self.finish(id);
            }
        }
    }

    /// All work of the streams that have not ended is complete.
    pub(crate) fn finish_open(&mut self) {
        for entry in self.entries.values_mut().filter(|entry| !entry.ended) {
            entry.finish(&mut self.last, &mut self.unneeded);
        }
    }

    /// Whether a stream may still use what was freed on it.
    pub(crate) fn has_pending(&self) -> bool {
        self.entries
            .values()
            .any(|entry| entry.dirty.is_some() || !entry.points.is_empty() || entry.unfinished)
    }

    /// All work of every stream is complete.
    pub(crate) fn finish_all(&mut self) {
        for entry in self.entries.values_mut() {
            entry.finish(&mut self.last, &mut self.unneeded);
        }
        self.entries.retain(|_, entry| !entry.ended);
    }

    fn poll(&mut self, driver: &D) {
        self.entries.retain(|_, entry| {
            while let Some((epoch, point)) = entry.points.front() {
                // An error is not a proof that the work is complete.
                if !driver.is_complete(point).unwrap_or(false) {
                    break;
                }
                entry.done = *epoch;
                entry.points.pop_front();
            }
            !(entry.ended && entry.points.is_empty() && !entry.unfinished)
        });
    }
}

impl<D: Driver> Entry<D> {
    fn record(
        &mut self,
        driver: &D,
        last: &mut u64,
        unneeded: &mut Vec<D::Stream>,
    ) -> Result<(), D::Error> {
        if let Some(stream) = &self.dirty {
            let point = driver.record(stream)?;
            self.points.push_back((self.epoch, point));
            // The point is after all that the stream did before.
            self.unfinished = false;
            *last += 1;
            self.epoch = *last;
            unneeded.extend(self.dirty.take());
        }
        Ok(())
    }

    fn finish(&mut self, last: &mut u64, unneeded: &mut Vec<D::Stream>) {
        self.done = self.epoch;
        *last += 1;
        self.epoch = *last;
        self.points.clear();
        self.unfinished = false;
        unneeded.extend(self.dirty.take());
    }
}
