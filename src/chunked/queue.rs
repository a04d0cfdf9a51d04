//! The pieces of a slice that [`Chunked`](crate::Chunked) works through: which is next, how large
//! they are, and what happens to them when memory runs out.
//!
//! Lanes take pieces from the front, each the lowest that is left. A piece ends in one of three
//! ways: it is done; it goes back, because memory ran out, and is taken again in smaller parts; or
//! everything stops. Nothing here knows of CUDA.
//!
//! Memory may have run out only because two lanes wanted it at once. So a lane that goes back waits
//! for the other one's piece before it tries again; at the smallest piece it gives up and leaves the
//! rest to the other; and only the last lane, which had the device to itself, fails.

use std::cmp::Reverse;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::core::log_error;
use crate::error::{Error, Result};

/// A part of the host's slice, shared or exclusive.
pub(crate) trait HostPart<T>: Sized + Send {
    /// Whether what the device made of it is wanted back.
    const COMES_BACK: bool;

    fn values(&self) -> &[T];

    fn split(self, mid: usize) -> (Self, Self);

    fn put_back(&mut self, values: &[T]);
}

impl<T: Sync> HostPart<T> for &[T] {
    const COMES_BACK: bool = false;

    fn values(&self) -> &[T] {
        self
    }

    fn split(self, mid: usize) -> (Self, Self) {
        self.split_at(mid)
    }

    fn put_back(&mut self, _values: &[T]) {}
}

impl<T: Copy + Send> HostPart<T> for &mut [T] {
    const COMES_BACK: bool = true;

    fn values(&self) -> &[T] {
        self
    }

    fn split(self, mid: usize) -> (Self, Self) {
        self.split_at_mut(mid)
    }

    fn put_back(&mut self, values: &[T]) {
        self.copy_from_slice(values);
    }
}

/// What it took; see [`Chunked`](crate::Chunked).
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
    /// How many pieces were done.
    pub pieces: usize,
    /// The number of values in a piece, as it was in the end.
    pub piece_len: usize,
    /// How often the piece was halved.
    pub halved: u32,
}

impl ChunkedSummary {
    pub(crate) fn new(pieces: usize, piece_len: usize, halved: u32) -> Self {
        Self {
            pieces,
            piece_len,
            halved,
        }
    }
}

/// What is left to do, for all lanes.
#[derive(Debug)]
pub(crate) struct Pieces<H> {
    state: Mutex<State<H>>,
    /// A piece has ended.
    ended: Condvar,
    /// No piece is made smaller than this.
    least: usize,
}

#[derive(Debug)]
struct State<H> {
    /// Runs that no lane has, each with the index at which it starts; the lowest is the last.
    waiting: Vec<(usize, H)>,
    /// The length of a piece.
    piece: usize,
    /// Lanes that are still at work.
    lanes: usize,
    /// Pieces that lanes have in hand.
    in_hand: usize,
    /// How often a piece ended, in whatever way.
    ends: u64,
    done: usize,
    halved: u32,
    /// Something went wrong, here or by a panic: no more pieces.
    stopped: bool,
    error: Option<Error>,
}

/// A piece in the hands of a lane. One that is dropped, by a panic, stops everything.
pub(crate) struct InHand<'a, H> {
    pieces: &'a Pieces<H>,
    /// Where it starts.
    pub(crate) start: usize,
    /// There until the piece has ended.
    host: Option<H>,
    /// The length of a piece when this was taken.
    pub(crate) piece: usize,
    /// Whether there was no other lane then.
    alone: bool,
}

impl<H> Pieces<H> {
    /// For one lane.
    pub(crate) fn new(host: H, piece: usize, least: usize) -> Self {
        Self {
            state: Mutex::new(State {
                waiting: vec![(0, host)],
                piece,
                lanes: 1,
                in_hand: 0,
                ends: 0,
                done: 0,
                halved: 0,
                stopped: false,
                error: None,
            }),
            ended: Condvar::new(),
            least,
        }
    }

    /// The closures of the program never run under this lock, so a panic leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, State<H>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One lane more.
    pub(crate) fn join(&self) {
        self.lock().lanes += 1;
    }

    /// A lane that never came to be.
    pub(crate) fn give_up(&self) {
        self.lock().lanes -= 1;
    }

    /// A lane that has no memory any more would go. Not as long as there is something to do: the
    /// other lane may have counted on this one.
    pub(crate) fn leave(&self) -> bool {
        let mut state = self.lock();
        let leaves = state.stopped || state.waiting.is_empty();
        if leaves {
            state.lanes -= 1;
        }
        leaves
    }

    /// The next piece, if there is one that nobody has.
    pub(crate) fn take<T>(&self) -> Option<InHand<'_, H>>
    where
        H: HostPart<T>,
    {
        let mut state = self.lock();
        if state.stopped {
            return None;
        }
        let (start, mut host) = state.waiting.pop()?;
        let piece = state.piece;
        if host.values().len() > piece {
            let (front, back) = host.split(piece);
            host = front;
            state.waiting.push((start + piece, back));
        }
        state.in_hand += 1;
        Some(InHand {
            pieces: self,
            start,
            host: Some(host),
            piece,
            alone: state.lanes == 1,
        })
    }

    pub(crate) fn into_result(self) -> Result<ChunkedSummary> {
        let state = self.state.into_inner();
        let state = state.unwrap_or_else(PoisonError::into_inner);
        match state.error {
            Some(error) => Err(error),
            None => {
                // Not for memory safety: the borrows of the pieces end here.
                debug_assert!(state.waiting.is_empty() && state.in_hand == 0);
                Ok(ChunkedSummary::new(state.done, state.piece, state.halved))
            }
        }
    }
}

impl<H> State<H> {
    fn end(&mut self) {
        self.in_hand -= 1;
        self.ends += 1;
    }
}

impl<H> InHand<'_, H> {
    pub(crate) fn host(&mut self) -> &mut H {
        self.host
            .as_mut()
            .unwrap_or_else(|| unreachable!("there until the piece has ended"))
    }

    /// Whether less can be tried where this is too much.
    pub(crate) fn can_shrink(&self) -> bool {
        self.piece > self.pieces.least
    }

    pub(crate) fn done(mut self) {
        self.host = None;
        let mut state = self.pieces.lock();
        state.end();
        state.done += 1;
        self.pieces.ended.notify_all();
    }

    /// Ends everything with this error.
    pub(crate) fn stop(mut self, error: Error) {
        self.host = None;
        let mut state = self.pieces.lock();
        state.end();
        state.stop(error);
        self.pieces.ended.notify_all();
    }

    /// What comes of an error of the work; the lane has given its memory back. Whether it goes on.
    pub(crate) fn failed(mut self, error: Error) -> bool {
        // Of the device's memory, or of the host's for staging: less may be enough.
        if !error.is_out_of_memory() {
            self.stop(error);
            return false;
        }
        let host = self.host.take();
        let pieces = self.pieces;
        let mut state = pieces.lock();
        state.end();
        pieces.ended.notify_all();
        let start = self.start;
        state.waiting.extend(host.map(|host| (start, host)));
        state
            .waiting
            .sort_unstable_by_key(|(start, _)| Reverse(*start));
        if self.piece > state.piece {
            // The other lane has halved it since.
        } else if state.piece > pieces.least {
            state.piece = (state.piece / 2).max(pieces.least);
            state.halved += 1;
        } else if state.lanes > 1 {
            state.lanes -= 1;
            return false;
        } else if self.alone {
            state.stop(error);
            return false;
        }
        let seen = state.ends;
        let others =
            |state: &mut State<H>| state.in_hand > 0 && state.ends == seen && !state.stopped;
        drop(pieces.ended.wait_while(state, others));
        true
    }
}

impl<H> State<H> {
    fn stop(&mut self, error: Error) {
        self.stopped = true;
        match &self.error {
            None => self.error = Some(error),
            // Both lanes failed: one error is answered, and the other is not lost.
            Some(_) => log_error(&error),
        }
    }
}

impl<H> Drop for InHand<'_, H> {
    fn drop(&mut self) {
        if self.host.is_some() {
            let mut state = self.pieces.lock();
            state.end();
            state.stopped = true;
            self.pieces.ended.notify_all();
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

    fn starts(pieces: &Pieces<&[u8]>) -> Vec<(usize, usize)> {
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
        let pieces = Pieces::new(&[0_u8; 10][..], 4, 1);
        assert_eq!(starts(&pieces), [(0, 4), (4, 4), (8, 2)]);
        assert!(pieces.leave());
        let summary = pieces.into_result().unwrap();
        assert_eq!((summary.pieces, summary.piece_len), (3, 4));
    }

    #[test]
    fn what_goes_back_is_taken_again_in_halves_and_first() {
        let pieces = Pieces::new(&[0_u8; 10][..], 4, 3);
        pieces.take().unwrap().done();
        assert!(pieces.take().unwrap().failed(FULL));
        assert_eq!(starts(&pieces), [(4, 3), (7, 1), (8, 2)]);
        assert_eq!(pieces.into_result().unwrap().halved, 1);
    }

    #[test]
    fn the_last_lane_fails_only_when_it_was_alone() {
        let pieces = Pieces::new(&[0_u8; 10][..], 2, 2);
        pieces.join();
        let (first, second) = (pieces.take().unwrap(), pieces.take().unwrap());
        // One of two gives up, and what it had goes back.
        assert!(!first.failed(FULL));
        // The other was not alone when it began, so it tries once more.
        assert!(second.failed(FULL));
        assert!(!pieces.leave(), "there is something to do");
        assert!(!pieces.take().unwrap().failed(FULL));
        assert!(pieces.take().is_none());
        assert_eq!(pieces.into_result().unwrap_err(), FULL);
    }

    #[test]
    fn two_that_fail_at_one_size_halve_it_once() {
        let pieces = Pieces::new(&[0_u8; 16][..], 8, 1);
        pieces.join();
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
    fn want_of_memory_after_the_work_stops_everything_too() {
        let pieces = Pieces::new(&[0_u8; 10][..], 4, 1);
        let taken = pieces.take().unwrap();
        assert!(taken.can_shrink());
        taken.stop(FULL);
        assert!(pieces.take().is_none());
        assert_eq!(pieces.into_result().unwrap_err(), FULL);
    }

    #[test]
    fn a_piece_that_is_dropped_stops_everything() {
        let pieces = Pieces::new(&[0_u8; 10][..], 4, 1);
        drop(pieces.take().unwrap());
        assert!(pieces.take().is_none());
        assert!(pieces.leave());
    }
}
