//! Work on more data than fits into device memory: piece by piece, on two workers. The top layer of the crate.

mod queue;

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::ops::Range;

use cust_core::DeviceCopy;

use crate::error::{Error, Result};
use crate::guards::{Context, DeviceBuffer, PinnedBuffer, Stream};
use crate::recovery;
use crate::scope::{DeviceMut, DeviceRef, Scope};
use queue::{ActivePiece, HostSlice, PieceQueue};

pub use queue::ChunkedSummary;

/// The largest default piece. Copies reach full speed, and page-locked memory of this size is allocated in milliseconds.
const LARGEST: usize = 64 << 20;
/// The smallest default piece. Below it, the calls take longer than the copies.
const SMALLEST: usize = 64 << 10;

/// Streams a slice of any length through the device, in pieces that fit.
///
/// Two workers, each a thread (one of them the caller's) with a [`Stream`], a page-locked staging buffer and device memory
/// for one piece. While one worker copies, the other computes.
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
/// If an allocation fails, of a worker or in the closure, the piece is halved and the same range is processed again, down
/// to [`min_piece_bytes`](Self::min_piece_bytes); there, one worker goes on alone; and if that fails too, the error is
/// returned. The host values are written only when all work on their piece has succeeded, so a retry begins with the same
/// values. But **the closure may be called more than once for a range**, whole or in parts: its side effects beyond the
/// piece, such as counting or adding to other memory, are repeated. What must happen once belongs into `collect` of
/// [`read`](Self::read), or is stored by range and overwritten.
///
/// Until the piece has its minimum size, allocations (those of the closure too) fail at once, without the recovery steps
/// of [`OomPolicy`](crate::oom::OomPolicy), such as [callbacks](Context::release_on_oom), and without diagnosis. Where
/// small pieces are worse than those steps, set a larger minimum.
///
/// Any other error ends the run: pieces in flight are waited for, the rest of the slice is unchanged, and the error is
/// returned. A panic in a closure does the same and continues in the caller. In all cases everything that was allocated
/// for the run is freed.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `update` or `read`"]
pub struct Chunked<'a, M = fn(usize) -> Result<()>> {
    context: &'a Context,
    piece_bytes: Option<usize>,
    min_piece_bytes: Option<usize>,
    /// Creates the workers' [extra](Self::with).
    make: M,
}

/// A piece of the slice on the device, within a scope of its worker's stream; see [`Chunked`].
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
    /// Their range in the slice.
    pub range: Range<usize>,
    /// The extra of the worker; see [`Chunked::with`].
    pub extra: &'scope mut S,
    /// What the closure borrows outlives the scope, so that the scope can bind it.
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
    /// Works in this context, with piece sizes chosen from the free memory.
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
    /// The size of a piece in bytes, rounded down to whole values. By default a quarter of the device memory that is free
    /// at the start, or of what the context's [memory limit](crate::context::ContextBuilder::memory_limit) leaves if that is less,
    /// and 64 MiB at most. Two pieces are on the device at a time, and as much memory is page-locked on the host.
    pub fn piece_bytes(mut self, bytes: usize) -> Self {
        self.piece_bytes = Some(bytes);
        self
    }

    /// The smallest piece; 64 KiB by default, or one value if that is larger.
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

    /// Gives each worker something of its own for pieces of up to so many values, such as memory for results. `make` is
    /// called when a worker allocates its memory, and again when pieces have become smaller; if it fails for lack of
    /// memory, they become smaller. The closure gets it as [`Piece::extra`] and can bind it.
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
    ///         let mut scratch = s.bind_mut(piece.extra)?.slice(..piece.data.len())?;
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

    /// Copies each piece of the slice to the device, calls `work` to enqueue work on it, and copies the piece back. Pieces
    /// cover the slice, each value once, from front to back, two at a time. An empty slice has no pieces.
    ///
    /// `work` runs on the workers' threads, and [more than once](Self#when-memory-runs-out) for a range where memory runs
    /// out.
    ///
    /// ```no_run,standalone_crate
    /// use cuguard::{Chunked, Context, Module};
    ///
    /// let context = Context::new(0)?;
    /// let module = Module::from_ptx(&context, include_str!("../../kernels/pattern.ptx"))?;
    /// let fill = module.function("fill_pattern")?;
    /// let mut words = vec![0_u32; 1 << 30];
    /// Chunked::new(&context).update(&mut words, |s, piece| {
    ///     let count = piece.data.len() as u64;
    ///     // SAFETY: fill_pattern(words, count, seed) writes `count` words.
    ///     unsafe { s.launch(&fill, (256, 256), &[&piece.data, &count, &7_u32]) }
    /// })?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::PieceTooSmall`], the error of `work`, or any other driver error. Pieces that were finished before are
    /// written back.
    pub fn update<'env, T, S, W>(&'env self, values: &mut [T], work: W) -> Result<ChunkedSummary>
    where
        T: DeviceCopy + Send + Sync,
        M: Fn(usize) -> Result<S> + Sync,
        W: for<'scope> Fn(&Scope<'scope, 'scope>, Piece<'scope, 'env, T, S>) -> Result<()> + Sync,
    {
        self.run("Chunked::update", values, &work, &|_, _| Ok(()))
    }

    /// As [`update`](Self::update), for values that are not copied back. When the work on a piece is finished, `collect` is
    /// called with its range and the worker's [extra](Self::with), to read the results: once for each piece, on the
    /// workers' threads.
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
    ///             let first = piece.data.slice(..1)?;
    ///             s.download(&mut s.bind_host_mut(piece.extra), &first)
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
    /// As [`update`](Self::update), and the error of `collect`, which ends the run.
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

    /// The first length of a piece, and the minimum.
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
        let mut sizes = [self.piece_bytes, self.min_piece_bytes]
            .into_iter()
            .flatten();
        if let Some(bytes) = sizes.find(|bytes| *bytes < element) {
            return Err(too_small(bytes, element, "one value"));
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
        H: HostSlice<T>,
        T: DeviceCopy,
        M: Fn(usize) -> Result<S> + Sync,
        W: for<'scope> Fn(&Scope<'scope, 'scope>, Piece<'scope, 'env, T, S>) -> Result<()> + Sync,
        C: Fn(Range<usize>, &mut S) -> Result<()> + Sync,
    {
        let len = host.values().len();
        let (piece, least) = self.lengths::<T>(operation, len)?;
        if len == 0 {
            return Ok(ChunkedSummary {
                pieces: 0,
                piece_len: piece,
                halved: 0,
            });
        }
        let queue = PieceQueue::new(host, piece, least);
        let worker = || self.run_worker(&queue, work, collect);
        std::thread::scope(|threads| {
            let mut other = None;
            if len > piece {
                queue.add_worker();
                let named = std::thread::Builder::new().name("cuguard-chunked".to_owned());
                other = named.spawn_scoped(threads, worker).ok();
                if other.is_none() {
                    // No second thread: the caller's does all pieces.
                    queue.remove_worker();
                }
            }
            worker();
            if let Some(Err(panic)) = other.map(|other| other.join()) {
                std::panic::resume_unwind(panic);
            }
        });
        queue.into_result()
    }

    /// Processes pieces until there are none.
    fn run_worker<'env, H, T, S, W, C>(&'env self, queue: &PieceQueue<H>, work: &W, collect: &C)
    where
        H: HostSlice<T>,
        T: DeviceCopy,
        M: Fn(usize) -> Result<S>,
        W: for<'scope> Fn(&Scope<'scope, 'scope>, Piece<'scope, 'env, T, S>) -> Result<()>,
        C: Fn(Range<usize>, &mut S) -> Result<()>,
    {
        let mut memory = None;
        loop {
            while let Some(mut piece) = queue.take() {
                let attempted = if piece.can_shrink() {
                    recovery::without_recovery(|| self.attempt(&mut memory, &mut piece, work))
                } else {
                    self.attempt(&mut memory, &mut piece, work)
                };
                match attempted {
                    Ok((range, extra)) => match collect(range, extra) {
                        Ok(()) => piece.done(),
                        // Whatever the error: `collect` must not see this range again.
                        Err(error) => return piece.stop(error),
                    },
                    Err(error) => {
                        // First: the retry needs the memory.
                        memory = None;
                        if !piece.failed(error) {
                            return;
                        }
                    }
                }
            }
            memory = None;
            if queue.try_leave() {
                return;
            }
        }
    }

    /// Processes one piece, with the memory of the piece before it if that has the right size. Returns the range and the
    /// extra, for `collect`.
    fn attempt<'env, 'memory, H, T, S, W>(
        &'env self,
        memory: &'memory mut Option<WorkerMemory<T, S>>,
        piece: &mut ActivePiece<'_, H>,
        work: &W,
    ) -> Result<(Range<usize>, &'memory mut S)>
    where
        H: HostSlice<T>,
        T: DeviceCopy,
        M: Fn(usize) -> Result<S>,
        W: for<'scope> Fn(&Scope<'scope, 'scope>, Piece<'scope, 'env, T, S>) -> Result<()>,
    {
        let (start, most) = (piece.start, piece.piece_len);
        let host = piece.host();
        let len = host.values().len();
        // Frees memory for larger pieces than there are now.
        memory.take_if(|memory| !(len..=most).contains(&memory.staging.len()));
        let (memory, uploaded) = match memory {
            Some(memory) => {
                memory.staging[..len].copy_from_slice(host.values());
                (memory, false)
            }
            None => {
                let new = WorkerMemory::new(self.context, host.values(), &self.make)?;
                (memory.insert(new), true)
            }
        };
        let range = start..start + len;
        let WorkerMemory {
            extra,
            staging,
            device,
            stream,
        } = memory;
        stream.scope(|s| {
            let mut staging = s.bind_host_mut(&mut staging[..len]);
            let mut data = s.bind_mut(device)?.slice(..len)?;
            if !uploaded {
                s.upload(&mut data, &staging)?;
            }
            let address = *data.address();
            work(
                &s.without_env(),
                Piece {
                    data,
                    range: range.clone(),
                    extra: &mut *extra,
                    env: PhantomData,
                },
            )?;
            if !H::WRITE_BACK {
                return Ok(());
            }
            // Binds the same memory again: the closure's binding has ended, and its work is enqueued before.
            s.download(&mut staging, &DeviceRef::new(address, len))
        })?;
        host.write_back(&staging[..len]);
        Ok((range, extra))
    }
}

/// The stream and the memory of a worker.
#[derive(Debug)]
struct WorkerMemory<T: DeviceCopy, S> {
    extra: S,
    staging: PinnedBuffer<T>,
    device: DeviceBuffer<T>,
    /// Dropped last, because `extra` may own memory that is freed on it.
    stream: Stream,
}

impl<T: DeviceCopy, S> WorkerMemory<T, S> {
    /// For pieces of up to as many values as these, which are copied to the device. Device memory is allocated first: it
    /// is scarce, and page-locked memory is slow to allocate.
    fn new(context: &Context, values: &[T], make: impl Fn(usize) -> Result<S>) -> Result<Self> {
        let device = DeviceBuffer::from_slice(context, values)?.with_label("Chunked: piece");
        let extra = make(values.len())?;
        let staging = PinnedBuffer::from_slice(context, values)?.with_label("Chunked: staging");
        let stream = Stream::new(context)?.with_label("Chunked");
        Ok(Self {
            extra,
            staging,
            device,
            stream,
        })
    }
}
