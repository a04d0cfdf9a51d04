//! Work on more data than the device has memory for: piece by piece, on two lanes.

mod queue;

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::ops::Range;

use cust::memory::DeviceCopy;

use crate::error::{Error, Result};
use crate::guards::{Context, DeviceBuffer, PinnedBuffer, Stream};
use crate::recovery;
use crate::scope::{DeviceMut, DeviceRef, Scope};
use queue::{HostPart, InHand, Pieces};

pub use queue::ChunkedSummary;

/// The largest piece that is chosen without being asked for. Copies are as fast as they get, and
/// page-locked memory of this size is had in milliseconds.
const LARGEST: usize = 64 << 20;
/// The smallest piece, unless another is asked for. Below, the calls take longer than the copies.
const SMALLEST: usize = 64 << 10;

/// Streams a slice of any length through the device, in pieces that fit.
///
/// There are two lanes, each a thread (one of them is the caller's) with a [`Stream`], page-locked
/// memory for staging and memory on the device, for one piece each. While one lane's piece is being
/// copied, the other's is being worked on.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Chunked, Context};
///
/// let context = Context::new(0)?;
/// let mut values = vec![1_u32; 1_000_000];
/// let summary = Chunked::new(&context)
///     .piece_bytes(1 << 20)
///     .update(&mut values, |s, mut piece| s.fill(&mut piece.data, 7))?; // or a kernel
/// assert!(values.iter().all(|value| *value == 7));
/// assert_eq!((summary.pieces, summary.piece_len), (4, 262_144));
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// # When memory runs out
///
/// Where memory cannot be had, for the lanes or in the closure, the piece is halved and the same
/// range is done again, down to [`min_piece_bytes`](Self::min_piece_bytes); there, one lane goes on
/// alone; and if that is not enough, the error is answered. The values on the host are written only
/// when all work on their piece has succeeded, so to do it again begins with the same values. But
/// **the closure may be called more than once for a range**, whole or in parts: what it does beyond
/// the piece, such as counting or adding to other memory, happens again too. What must happen once
/// belongs into `collect` of [`read`](Self::read), or is made by range and overwritten.
///
/// Until the piece is as small as it may be, nobody is troubled: the work takes what there is, its
/// allocations (those of the closure too) fail at once, and their errors say little. Only for the
/// smallest piece is all done that [`OomPolicy`](crate::oom::OomPolicy) allows, such as to have caches
/// [give memory back](Context::release_on_oom). Where small pieces are the worse evil, a larger
/// minimum makes that happen sooner.
///
/// Any other error ends the work: pieces that are in flight are waited for, the rest is left as it
/// was, and the error is answered. So does a panic in a closure, which goes on in the caller. In all
/// cases everything that was taken for the work is freed.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `update` or `read`"]
pub struct Chunked<'a, M = fn(usize) -> Result<()>> {
    context: &'a Context,
    piece_bytes: Option<usize>,
    min_piece_bytes: Option<usize>,
    /// Makes what a lane has besides.
    make: M,
}

/// A piece of the slice, on the device, within a scope of its lane's stream; see [`Chunked`].
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = cuguard::Context::new(0)?;
/// use cuguard::{Chunked, Result, Scope};
/// use cuguard::chunked::Piece;
///
/// /// Sets each value to the index of its piece's first.
/// fn stamp<'s>(s: &Scope<'s, '_>, mut piece: Piece<'s, '_, u32>) -> Result<()> {
///     s.fill(&mut piece.data, piece.range.start as u32)
/// }
///
/// let mut values = [0; 5];
/// Chunked::new(&context).piece_bytes(8).update(&mut values, stamp)?;
/// assert_eq!(values, [0, 0, 2, 2, 4]);
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// It cannot be kept for longer than the closure:
///
/// ```compile_fail,E0521
/// # let context = cuguard::Context::new(0)?;
/// # use std::sync::Mutex;
/// # use cuguard::Chunked;
/// let kept = Mutex::new(None);
/// Chunked::new(&context).update(&mut [0; 5], |_, piece| {
///     *kept.lock().unwrap() = Some(piece.data);
///     Ok(())
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
#[non_exhaustive]
pub struct Piece<'scope, 'env, T, S = ()> {
    /// The values. All work on them ends with the scope.
    pub data: DeviceMut<'scope, T>,
    /// Where in the slice they are.
    pub range: Range<usize>,
    /// What the lane has besides; see [`Chunked::with`].
    pub extra: &'scope mut S,
    /// What the closure borrows lives longer than the scope, so that the scope can bind it.
    env: PhantomData<&'scope &'env ()>,
}

impl<T, S> fmt::Debug for Piece<'_, '_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Piece({:?} of {})",
            self.range,
            std::any::type_name::<T>()
        )
    }
}

fn nothing(_len: usize) -> Result<()> {
    Ok(())
}

impl<'a> Chunked<'a> {
    /// Work in this context, with the settings chosen from what is free.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// assert!(cuguard::Chunked::new(&context).update(&mut [0; 9], |_, _| Ok(())).is_ok());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn new(context: &'a Context) -> Self {
        Self {
            context,
            piece_bytes: None,
            min_piece_bytes: None,
            make: nothing,
        }
    }
}

impl<'a, M> Chunked<'a, M> {
    /// The size of a piece in bytes, rounded down to whole values. By default a quarter of what is
    /// free on the device when the work begins, or of what the context's [memory
    /// limit](crate::ContextBuilder::memory_limit) leaves if that is less, and 64 MiB at most. Two
    /// pieces are on the device at a time, and as much is page-locked on the host.
    pub fn piece_bytes(mut self, bytes: usize) -> Self {
        self.piece_bytes = Some(bytes);
        self
    }

    /// The size below which a piece is not halved; 64 KiB by default, or one value where that is
    /// larger.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// let context = cuguard::Context::builder().memory_limit(1500).build()?;
    /// let chunked = cuguard::Chunked::new(&context).piece_bytes(4000).min_piece_bytes(1000);
    /// assert_eq!(chunked.update(&mut [0_u8; 9000], |_, _| Ok(()))?.piece_len, 1000);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn min_piece_bytes(mut self, bytes: usize) -> Self {
        self.min_piece_bytes = Some(bytes);
        self
    }

    /// Has each lane make something of its own for pieces of up to so many values, such as memory
    /// for results: `make` is called when a lane gets its memory, and again when pieces have become
    /// smaller; memory that it cannot have makes them smaller. It comes to the closure as
    /// [`Piece::extra`], and can be bound there.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::{Chunked, DeviceBuffer};
    ///
    /// let mut values = vec![0_u8; 100_000];
    /// Chunked::new(&context)
    ///     .with(|len| DeviceBuffer::<u8>::zeroed(&context, len))
    ///     .update(&mut values, |s, mut piece| {
    ///         let mut scratch = s.bind_mut(piece.extra)?.slice(..piece.data.len());
    ///         s.fill(&mut scratch, 3)?;
    ///         s.copy(&mut piece.data, &scratch)
    ///     })?;
    /// assert!(values.iter().all(|value| *value == 3));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn with<S, N: Fn(usize) -> Result<S> + Sync>(self, make: N) -> Chunked<'a, N> {
        Chunked {
            context: self.context,
            piece_bytes: self.piece_bytes,
            min_piece_bytes: self.min_piece_bytes,
            make,
        }
    }

    /// Puts each piece of the slice on the device, has `work` give work on it to the scope, and
    /// writes back what came of it. Pieces cover the slice, each value once; they are begun from the
    /// front to the back, two at a time. No values are no pieces.
    ///
    /// `work` runs on the lanes' threads, and [more than once](Self#when-memory-runs-out) for a
    /// range where memory runs out.
    ///
    /// ```no_run
    /// use cuguard::{Chunked, Context, Module};
    ///
    /// let context = Context::new(0)?;
    /// let module = Module::from_ptx(&context, include_str!("../kernels/pattern.ptx"))?;
    /// let fill = module.function("fill_pattern")?;
    /// let mut words = vec![0_u32; 1 << 30];
    /// Chunked::new(&context).update(&mut words, |s, piece| {
    ///     let count = piece.data.len() as u64;
    ///     // SAFETY: fill_pattern(words, count, seed) writes `count` words.
    ///     unsafe { s.launch(&fill, 256, 256, 0, &[&piece.data, &count, &7_u32]) }
    /// })?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::PieceTooSmall`], what `work` answers, or what the driver says. Pieces that were done
    /// before have been written back.
    pub fn update<'env, T, S, W>(&'env self, values: &mut [T], work: W) -> Result<ChunkedSummary>
    where
        T: DeviceCopy + Send + Sync,
        M: Fn(usize) -> Result<S> + Sync,
        W: for<'scope> Fn(&Scope<'scope, 'scope>, Piece<'scope, 'env, T, S>) -> Result<()> + Sync,
    {
        self.run("Chunked::update", values, &work, &|_, _| Ok(()))
    }

    /// As [`update`](Self::update), for values that are only read on the host: nothing is written
    /// back. When the work on a piece is done, `collect` is called with its range and the lane's
    /// [extra](Self::with), to fetch what came of it: once for each piece, on the lanes' threads.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use std::sync::Mutex;
    /// use cuguard::{Chunked, PinnedBuffer};
    ///
    /// // The first value of each piece; a kernel would make a sum of them all.
    /// let values: Vec<u32> = (0..100_000).collect();
    /// let firsts = Mutex::new(Vec::new());
    /// Chunked::new(&context)
    ///     .piece_bytes(100_000)
    ///     .with(|_| PinnedBuffer::<u32>::zeroed(&context, 1))
    ///     .read(
    ///         &values,
    ///         |s, piece| {
    ///             let mut first = s.bind_host_mut(piece.extra);
    ///             s.download(&mut first, &piece.data.slice(..1))
    ///         },
    ///         |range, first| {
    ///             firsts.lock().unwrap().push((range.start, first[0]));
    ///             Ok(())
    ///         },
    ///     )?;
    /// let mut firsts = firsts.into_inner().unwrap();
    /// firsts.sort();
    /// assert_eq!(firsts, [(0, 0), (25_000, 25_000), (50_000, 50_000), (75_000, 75_000)]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`update`](Self::update), and what `collect` answers, which ends the work.
    pub fn read<'env, T, S, W, C>(
        &'env self,
        values: &[T],
        work: W,
        collect: C,
    ) -> Result<ChunkedSummary>
    where
        T: DeviceCopy + Send + Sync,
        M: Fn(usize) -> Result<S> + Sync,
        W: for<'scope> Fn(&Scope<'scope, 'scope>, Piece<'scope, 'env, T, S>) -> Result<()> + Sync,
        C: Fn(Range<usize>, &mut S) -> Result<()> + Sync,
    {
        self.run("Chunked::read", values, &work, &collect)
    }

    /// The length of a piece to begin with, and the least.
    fn lengths<T>(&self, operation: &'static str, len: usize) -> Result<(usize, usize)> {
        let element = mem::size_of::<T>();
        if element == 0 {
            return Ok((len, len));
        }
        let too_small = |bytes: usize, least: usize, reason| Error::PieceTooSmall {
            operation,
            bytes: bytes as u64,
            least: least as u64,
            reason,
        };
        for bytes in [self.piece_bytes, self.min_piece_bytes] {
            match bytes {
                Some(bytes) if bytes < element => {
                    return Err(too_small(bytes, element, "one value"));
                }
                _ => {}
            }
        }
        let asked = self.piece_bytes.unwrap_or(usize::MAX);
        let least = match self.min_piece_bytes {
            Some(least) if asked < least => {
                return Err(too_small(asked, least, "the minimum that was set"));
            }
            Some(least) => least,
            None => SMALLEST.min(asked),
        };
        let piece = match self.piece_bytes {
            Some(bytes) => bytes,
            None => {
                let free = self.context.memory()?.free;
                let left = self.context.state().budget.left();
                let quarter = left.map_or(free, |left| left.min(free)) / 4;
                usize::try_from(quarter).unwrap_or(LARGEST).min(LARGEST)
            }
        };
        let least = (least / element).max(1);
        Ok(((piece / element).max(least), least))
    }

    fn run<'env, H, T, S, W, C>(
        &'env self,
        operation: &'static str,
        host: H,
        work: &W,
        collect: &C,
    ) -> Result<ChunkedSummary>
    where
        H: HostPart<T>,
        T: DeviceCopy,
        M: Fn(usize) -> Result<S> + Sync,
        W: for<'scope> Fn(&Scope<'scope, 'scope>, Piece<'scope, 'env, T, S>) -> Result<()> + Sync,
        C: Fn(Range<usize>, &mut S) -> Result<()> + Sync,
    {
        let len = host.values().len();
        let (piece, least) = self.lengths::<T>(operation, len)?;
        if len == 0 {
            return Ok(ChunkedSummary::new(0, piece, 0));
        }
        let pieces = Pieces::new(host, piece, least);
        let lane = || self.lane(&pieces, work, collect);
        std::thread::scope(|threads| {
            let mut other = None;
            if len > piece {
                pieces.join();
                let named = std::thread::Builder::new().name("cuguard-chunked".to_owned());
                other = named.spawn_scoped(threads, lane).ok();
                if other.is_none() {
                    // Without a second thread, the caller's does it all.
                    pieces.give_up();
                }
            }
            lane();
            if let Some(Err(panic)) = other.map(|other| other.join()) {
                std::panic::resume_unwind(panic);
            }
        });
        pieces.into_result()
    }

    /// Works on pieces until there are none.
    fn lane<'env, H, T, S, W, C>(&'env self, pieces: &Pieces<H>, work: &W, collect: &C)
    where
        H: HostPart<T>,
        T: DeviceCopy,
        M: Fn(usize) -> Result<S>,
        W: for<'scope> Fn(&Scope<'scope, 'scope>, Piece<'scope, 'env, T, S>) -> Result<()>,
        C: Fn(Range<usize>, &mut S) -> Result<()>,
    {
        let mut lane = None;
        loop {
            while let Some(mut piece) = pieces.take() {
                let attempted = if piece.can_shrink() {
                    recovery::guessing(|| self.attempt(&mut lane, &mut piece, work))
                } else {
                    self.attempt(&mut lane, &mut piece, work)
                };
                match attempted {
                    Ok((range, extra)) => match collect(range, extra) {
                        Ok(()) => piece.done(),
                        // Memory or not: it has seen this range, and must not see it again.
                        Err(error) => return piece.stop(error),
                    },
                    Err(error) => {
                        // First: who tries again needs the memory.
                        lane = None;
                        if !piece.failed(error) {
                            return;
                        }
                    }
                }
            }
            lane = None;
            if pieces.leave() {
                return;
            }
        }
    }

    /// Works on one piece, with the memory of the one before it where that is of the right size.
    /// Answers what is to be collected.
    fn attempt<'env, 'lane, H, T, S, W>(
        &'env self,
        lane: &'lane mut Option<Lane<T, S>>,
        piece: &mut InHand<'_, H>,
        work: &W,
    ) -> Result<(Range<usize>, &'lane mut S)>
    where
        H: HostPart<T>,
        T: DeviceCopy,
        M: Fn(usize) -> Result<S>,
        W: for<'scope> Fn(&Scope<'scope, 'scope>, Piece<'scope, 'env, T, S>) -> Result<()>,
    {
        let (start, most) = (piece.start, piece.piece);
        let host = piece.host();
        let len = host.values().len();
        // What was made for larger pieces, which could not be had, goes.
        lane.take_if(|lane| !(len..=most).contains(&lane.staging.len()));
        let (lane, uploaded) = match lane {
            Some(lane) => {
                lane.staging[..len].copy_from_slice(host.values());
                (lane, false)
            }
            None => (
                lane.insert(Lane::new(self.context, host.values(), &self.make)?),
                true,
            ),
        };
        let range = start..start + len;
        let Lane {
            extra,
            staging,
            device,
            stream,
        } = lane;
        stream.scope(|s| {
            let mut staging = s.bind_host_mut(&mut staging[..len]);
            let mut data = s.bind_mut(device)?.slice(..len);
            if !uploaded {
                s.upload(&mut data, &staging)?;
            }
            let address = *data.address();
            work(
                &s.by_itself(),
                Piece {
                    data,
                    range: range.clone(),
                    extra: &mut *extra,
                    env: PhantomData,
                },
            )?;
            if !H::COMES_BACK {
                return Ok(());
            }
            // The same memory again. What the closure was given is gone, and its work comes first.
            s.download(&mut staging, &DeviceRef::new(address, len))
        })?;
        host.put_back(&staging[..len]);
        Ok((range, extra))
    }
}

/// What a lane has.
#[derive(Debug)]
struct Lane<T: DeviceCopy, S> {
    extra: S,
    staging: PinnedBuffer<T>,
    device: DeviceBuffer<T>,
    /// Last, as what is freed on it may be in `extra`.
    stream: Stream,
}

impl<T: DeviceCopy, S> Lane<T, S> {
    /// For pieces of up to as many values as these, which are on the device then. Device memory
    /// comes first: it is what is short, and page-locked memory takes long to make.
    fn new(context: &Context, values: &[T], make: impl Fn(usize) -> Result<S>) -> Result<Self> {
        let device = DeviceBuffer::from_slice(context, values)?.named("Chunked: piece");
        let extra = make(values.len())?;
        let staging = PinnedBuffer::from_slice(context, values)?.named("Chunked: staging");
        let stream = Stream::new(context)?.named("Chunked");
        Ok(Self {
            extra,
            staging,
            device,
            stream,
        })
    }
}
