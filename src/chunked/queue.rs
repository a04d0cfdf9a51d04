//! The queue of pieces that [`Chunked`](crate::Chunked) works through. It decides which piece is next, how large pieces
//! are, and what happens when memory runs out. It knows nothing of CUDA.
//!
//! Each worker takes the lowest piece that is left. A piece ends in one of three ways: it is done; memory ran out, so
//! it returns to the queue, from which workers take it again in smaller parts; or the whole queue stops.
//!
//! Memory may have run out only because two workers allocated at once. So a worker whose piece returns to the queue
//! waits for the other worker's piece before it tries again. At the smallest piece it leaves the rest to the other
//! worker. Only the last worker, which had the device to itself, fails.

use std::cmp::Reverse;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::core::lock::lock;
use crate::core::log_error;
use crate::error::{Error, Result};

/// A part of the host's slice, shared or exclusive.
pub(crate) trait HostSlice<T>: Sized + Send {
    /// Whether the values on the device are copied back.
    const WRITE_BACK: bool;

    fn values(&self) -> &[T];

    fn split(self, mid: usize) -> (Self, Self);

    fn write_back(&mut self, values: &[T]);
}

impl<T: Sync> HostSlice<T> for &[T] {
    const WRITE_BACK: bool = false;

    fn values(&self) -> &[T] {
        self
    }

    fn split(self, mid: usize) -> (Self, Self) {
        self.split_at(mid)
    }

    fn write_back(&mut self, _values: &[T]) {}
}

impl<T: Copy + Send> HostSlice<T> for &mut [T] {
    const WRITE_BACK: bool = true;

    fn values(&self) -> &[T] {
        self
    }

    fn split(self, mid: usize) -> (Self, Self) {
        self.split_at_mut(mid)
    }

    fn write_back(&mut self, values: &[T]) {
        self.copy_from_slice(values);
    }
}

/// The result of a [`Chunked`](crate::Chunked) run.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = cuguard::Context::new(0)?;
/// let summary = cuguard::Chunked::new(&context).update(&mut [1, 2, 3], |_, _| Ok(()))?;
/// assert_eq!((summary.pieces, summary.halved), (1, 0));
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChunkedSummary {
    /// How many pieces were processed.
    pub pieces: usize,
    /// The final number of values per piece.
    pub piece_len: usize,
    /// How often the piece was halved.
    pub halved: u32,
}

/// The pieces that are left, for all workers.
#[derive(Debug)]
pub(crate) struct PieceQueue<H> {
    state: Mutex<State<H>>,
    /// Notified when a piece ends.
    ended: Condvar,
    /// The smallest piece.
    min: usize,
}

#[derive(Debug)]
struct State<H> {
    /// Ranges that no worker has, each with the index at which it starts; the lowest is the last.
    waiting: Vec<(usize, H)>,
    workers: usize,
    /// Pieces that workers have taken.
    active: usize,
    /// How often a piece ended, in any way.
    ends: u64,
    /// Counts what is done; `piece_len` is the current length of a piece.
    summary: ChunkedSummary,
    /// An error or a panic: no more pieces.
    stopped: bool,
    error: Option<Error>,
}

/// A piece that a worker has taken. One that is dropped, by a panic, stops everything.
pub(crate) struct ActivePiece<'a, H> {
    queue: &'a PieceQueue<H>,
    /// The index at which it starts.
    pub(crate) start: usize,
    /// `None` once the piece has ended.
    host: Option<H>,
    /// The length of a piece when this was taken.
    pub(crate) piece_len: usize,
    /// Whether there was no other worker then.
    alone: bool,
}

impl<H> PieceQueue<H> {
    /// For one worker.
    pub(crate) fn new(host: H, piece_len: usize, min: usize) -> Self {
        Self {
            state: Mutex::new(State {
                waiting: vec![(0, host)],
                workers: 1,
                active: 0,
                ends: 0,
                summary: ChunkedSummary {
                    pieces: 0,
                    piece_len,
                    halved: 0,
                },
                stopped: false,
                error: None,
            }),
            ended: Condvar::new(),
            min,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<H>> {
        lock(&self.state)
    }

    pub(crate) fn add_worker(&self) {
        self.lock().workers += 1;
    }

    /// A worker could not be started.
    pub(crate) fn remove_worker(&self) {
        self.lock().workers -= 1;
    }

    /// Whether a worker may end; it has freed its memory. Not while there is work: the other worker may have left it
    /// to this one.
    pub(crate) fn try_leave(&self) -> bool {
        let mut state = self.lock();
        let leaves = state.stopped || state.waiting.is_empty();
        if leaves {
            state.workers -= 1;
        }
        leaves
    }

    /// Takes the next piece, if there is one.
    pub(crate) fn take<T>(&self) -> Option<ActivePiece<'_, H>>
    where
        H: HostSlice<T>,
    {
        let mut state = self.lock();
        if state.stopped {
            return None;
        }
        let (start, mut host) = state.waiting.pop()?;
        let piece_len = state.summary.piece_len;
        if host.values().len() > piece_len {
            let (front, back) = host.split(piece_len);
            host = front;
            state.waiting.push((start + piece_len, back));
        }
        state.active += 1;
        Some(ActivePiece {
            queue: self,
            start,
            host: Some(host),
            piece_len,
            alone: state.workers == 1,
        })
    }

    pub(crate) fn into_result(self) -> Result<ChunkedSummary> {
        let state = self.state.into_inner();
        let state = state.unwrap_or_else(PoisonError::into_inner);
        match state.error {
            Some(error) => Err(error),
            None => {
                debug_assert!(state.waiting.is_empty() && state.active == 0);
                Ok(state.summary)
            }
        }
    }
}

impl<H> State<H> {
    fn stop(&mut self, error: Error) {
        self.stopped = true;
        match &self.error {
            None => self.error = Some(error),
            // Both workers failed: one error is returned, the other logged.
            Some(_) => log_error(&error),
        }
    }
}

impl<'a, H> ActivePiece<'a, H> {
    pub(crate) fn host(&mut self) -> &mut H {
        self.host
            .as_mut()
            .unwrap_or_else(|| unreachable!("there until the piece has ended"))
    }

    /// Whether a smaller piece can be tried.
    pub(crate) fn can_shrink(&self) -> bool {
        self.piece_len > self.queue.min
    }

    /// Ends the piece. Returns the locked state and the part of the slice.
    fn end(&mut self) -> (MutexGuard<'a, State<H>>, Option<H>) {
        let mut state = self.queue.lock();
        state.active -= 1;
        state.ends += 1;
        self.queue.ended.notify_all();
        (state, self.host.take())
    }

    pub(crate) fn done(mut self) {
        self.end().0.summary.pieces += 1;
    }

    /// Stops everything with this error.
    pub(crate) fn stop(mut self, error: Error) {
        self.end().0.stop(error);
    }

    /// The work on the piece failed; the worker has freed its memory. Returns whether the worker goes on.
    pub(crate) fn failed(mut self, error: Error) -> bool {
        // Of device memory, or of host memory for staging: a smaller piece may fit.
        if !error.is_out_of_memory() {
            self.stop(error);
            return false;
        }
        let (queue, start) = (self.queue, self.start);
        let (mut state, host) = self.end();
        state.waiting.extend(host.map(|host| (start, host)));
        state
            .waiting
            .sort_unstable_by_key(|(start, _)| Reverse(*start));
        if self.piece_len > state.summary.piece_len {
            // The other worker has halved it since.
        } else if self.can_shrink() {
            state.summary.piece_len = (self.piece_len / 2).max(queue.min);
            state.summary.halved += 1;
        } else if state.workers > 1 {
            state.workers -= 1;
            return false;
        } else if self.alone {
            state.stop(error);
            return false;
        }
        let ends = state.ends;
        let others =
            |state: &mut State<H>| state.active > 0 && state.ends == ends && !state.stopped;
        drop(queue.ended.wait_while(state, others));
        true
    }
}

impl<H> Drop for ActivePiece<'_, H> {
    fn drop(&mut self) {
        if self.host.is_some() {
            self.end().0.stopped = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Error = Error::OutOfHostMemory {
        operation: "test",
        bytes: 1,
        limit: None,
    };

    fn starts(pieces: &PieceQueue<&[u8]>) -> Vec<(usize, usize)> {
        std::iter::from_fn(|| {
            let mut taken = pieces.take()?;
            let seen = (taken.start, taken.host().len());
            taken.done();
            Some(seen)
        })
        .collect()
    }

    #[test]
    fn pieces_come_in_order_and_cover_everything_once() {
        let pieces = PieceQueue::new(&[0_u8; 10][..], 4, 1);
        assert_eq!(starts(&pieces), [(0, 4), (4, 4), (8, 2)]);
        assert!(pieces.try_leave());
        let summary = pieces.into_result().unwrap();
        assert_eq!((summary.pieces, summary.piece_len), (3, 4));
    }

    #[test]
    fn a_piece_that_returns_is_taken_again_in_halves_and_first() {
        let pieces = PieceQueue::new(&[0_u8; 10][..], 4, 3);
        pieces.take().unwrap().done();
        assert!(pieces.take().unwrap().failed(FULL));
        assert_eq!(starts(&pieces), [(4, 3), (7, 1), (8, 2)]);
        assert_eq!(pieces.into_result().unwrap().halved, 1);
    }

    #[test]
    fn the_last_worker_fails_only_when_it_was_alone() {
        let pieces = PieceQueue::new(&[0_u8; 10][..], 2, 2);
        pieces.add_worker();
        let (first, second) = (pieces.take().unwrap(), pieces.take().unwrap());
        // One of two ends, and its piece returns to the queue.
        assert!(!first.failed(FULL));
        // The other was not alone when it began, so it retries.
        assert!(second.failed(FULL));
        assert!(!pieces.try_leave(), "there is something to do");
        assert!(!pieces.take().unwrap().failed(FULL));
        assert!(pieces.take().is_none());
        assert_eq!(pieces.into_result().unwrap_err(), FULL);
    }

    #[test]
    fn two_that_fail_at_one_size_halve_it_once() {
        let pieces = PieceQueue::new(&[0_u8; 16][..], 8, 1);
        pieces.add_worker();
        let (first, second) = (pieces.take().unwrap(), pieces.take().unwrap());
        std::thread::scope(|threads| {
            let waits = threads.spawn(|| first.failed(FULL));
            assert!(second.failed(FULL));
            assert!(waits.join().unwrap());
        });
        assert_eq!(starts(&pieces), [(0, 4), (4, 4), (8, 4), (12, 4)]);
        assert_eq!(pieces.into_result().unwrap().halved, 1);
    }

    #[test]
    fn lack_of_memory_after_the_work_stops_everything_too() {
        let pieces = PieceQueue::new(&[0_u8; 10][..], 4, 1);
        let taken = pieces.take().unwrap();
        assert!(taken.can_shrink());
        taken.stop(FULL);
        assert!(pieces.take().is_none());
        assert_eq!(pieces.into_result().unwrap_err(), FULL);
    }

    #[test]
    fn a_piece_that_is_dropped_stops_everything() {
        let pieces = PieceQueue::new(&[0_u8; 10][..], 4, 1);
        drop(pieces.take().unwrap());
        assert!(pieces.take().is_none());
        assert!(pieces.try_leave());
    }
}
