//! The bytes of `fill`: kernels write a pattern to all blocks, and keep checking and writing those that stay while the
//! others are freed and one large block is allocated. Then every word of every block is checked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use cuguard::driver::{DriverKind, load};
use cuguard::{Context, DeviceBox, DeviceBuffer, Function, Module, Stream, TrackingLevel};

use crate::adaptor::{Allocator, Own, block, context, large as large_block};
use crate::figures::{figure, note};
use crate::fill::{Ballast, Half, SIZES, case};
use crate::{Options, Outcome};

const SEED: u32 = 0x5eed_0001;

/// Threads in a group, and groups in a launch.
const LAUNCH: (u32, u32) = (1056, 256);

pub fn check(options: &Options) -> Outcome {
    all::<Own>(options)
}

fn all<A: Allocator>(options: &Options) -> Outcome {
    let simulated = load()?.kind() == DriverKind::Simulated;
    let begin = Instant::now();
    for half in Half::ALL {
        for bytes in SIZES {
            let case = case(bytes, half);
            if simulated {
                let text = "not run: needs a real GPU";
                note("check", &case, A::NAME, text);
            } else if begin.elapsed() > options.seconds {
                note("check", &case, A::NAME, "not run: no time left");
            } else if let Err(error) = one::<A>(options, &case, bytes, half) {
                note("check", &case, A::NAME, &error.to_string());
            }
        }
    }
    Ok(())
}

/// Pieces of memory of equal size, which kernels write and check.
struct Pieces {
    addresses: DeviceBuffer<u64>,
    words: u64,
}

impl Pieces {
    /// Of so many bytes each, which is a divisor of the size of each block.
    fn new(
        context: &Context,
        blocks: &[Option<DeviceBuffer<u8>>],
        bytes: u64,
    ) -> cuguard::Result<Self> {
        let addresses: Vec<u64> = blocks
            .iter()
            .flatten()
            .flat_map(|block| {
                // Of a view: through `cust` it would be pinned, and pinned pages are not merged.
                let begin = block.as_view().as_device_ptr().as_raw();
                let end = begin + block.len() as u64;
                (begin..end).step_by(bytes as usize)
            })
            .collect();
        Ok(Self {
            addresses: DeviceBuffer::from_slice(context, &addresses)?,
            words: bytes / 4,
        })
    }

    fn bytes(&self) -> u64 {
        self.addresses.len() as u64 * self.words * 4
    }
}

/// The kernels of `blocks.ptx`.
struct Kernels<'a> {
    fill: Function<'a>,
    check: Function<'a>,
}

impl Kernels<'_> {
    /// Writes the pattern.
    fn fill(&self, stream: &Stream, pieces: &Pieces, seed: u32) -> cuguard::Result<()> {
        let count = pieces.addresses.len() as u64;
        stream.scope(|s| {
            let table = s.bind(&pieces.addresses)?;
            // SAFETY: fill_blocks(addresses, blocks, words, seed) writes the pieces, which live until the scope's end and
            // which nothing else uses meanwhile.
            unsafe { s.launch(&self.fill, LAUNCH, &[&table, &count, &pieces.words, &seed]) }
        })
    }

    /// Counts the words that differ from the pattern.
    fn wrong(
        &self,
        context: &Context,
        stream: &Stream,
        pieces: &Pieces,
        seed: u32,
    ) -> cuguard::Result<u64> {
        let mut wrong = DeviceBox::new(context, &0_u64)?;
        self.count(stream, pieces, seed, &mut wrong)?;
        wrong.get()
    }

    /// Adds their number to `wrong`.
    fn count(
        &self,
        stream: &Stream,
        pieces: &Pieces,
        seed: u32,
        wrong: &mut DeviceBox<u64>,
    ) -> cuguard::Result<()> {
        let count = pieces.addresses.len() as u64;
        stream.scope(|s| {
            let (table, wrong) = (s.bind(&pieces.addresses)?, s.bind_mut(wrong)?);
            // SAFETY: check_blocks(addresses, blocks, words, seed, mismatches) reads the pieces, which were filled, and
            // adds to one number.
            unsafe {
                let arguments: [&dyn cuguard::scope::KernelArgument; 5] =
                    [&table, &count, &pieces.words, &seed, &wrong];
                s.launch(&self.check, LAUNCH, &arguments)
            }
        })
    }
}

fn one<A: Allocator>(options: &Options, case: &str, bytes: u64, half: Half) -> Outcome {
    let context = context(TrackingLevel::Sites)?;
    let _current = context.make_current()?;
    let module = Module::from_ptx(&context, include_str!("blocks.ptx"))?;
    let kernels = Kernels {
        fill: module.function("fill_blocks")?,
        check: module.function("check_blocks")?,
    };
    let (stream, worker) = (Stream::new(&context)?, Stream::new(&context)?);
    let pool = A::new(&context)?;
    let source = pool.on(&stream);
    let piece = bytes.min(512 << 10);
    let report = |name, value| figure("check", case, A::NAME, name, value);

    let mut blocks = (0..options.fill / bytes)
        .map(|_| block(&source, bytes as usize).map(Some))
        .collect::<Result<Vec<_>, _>>()?;
    stream.synchronize()?;
    let everything = Pieces::new(&context, &blocks, piece)?;
    kernels.fill(&stream, &everything, SEED)?;

    let mut frees = half.choice();
    let mut leave = Vec::new();
    for (index, block) in blocks.iter_mut().enumerate() {
        if frees(index) {
            leave.push(block.take());
        }
    }
    let stay = Pieces::new(&context, &blocks, piece)?;
    let mut wrong_meanwhile = DeviceBox::new(&context, &0_u64)?;
    let ballast = Ballast::leaving(&context, options.fill / 120)?;

    let large = (leave.len() as u64 * bytes) as f64 * 0.95;
    let large = (large as u64 / piece * piece) as usize;
    let stop = AtomicBool::new(false);
    // The seed that the blocks have in the end, how often they were checked; the large block and its time.
    let ((seed, checks), (had, time)) = std::thread::scope(|scope| {
        let (context, kernels, stay) = (&context, &kernels, &stay);
        let (worker, stop, wrong) = (&worker, &stop, &mut wrong_meanwhile);
        let running = scope.spawn(move || -> cuguard::Result<(u32, u64)> {
            let _current = context.make_current()?;
            let (mut seed, mut checks) = (SEED, 0);
            while !stop.load(Ordering::Relaxed) {
                kernels.count(worker, stay, seed, wrong)?;
                checks += 1;
                seed = seed.rotate_left(7) ^ 0x9e37;
                kernels.fill(worker, stay, seed)?;
            }
            Ok((seed, checks))
        });
        // Kernels are at work before anything is freed.
        std::thread::sleep(std::time::Duration::from_millis(50));
        leave.clear();
        let begin = Instant::now();
        let say = |text: &str| note("check", case, A::NAME, text);
        let block = large_block(&pool, &stream, large, &say);
        let time = begin.elapsed().as_nanos() as f64 / 1e6;
        std::thread::sleep(std::time::Duration::from_millis(50));
        stop.store(true, Ordering::Relaxed);
        let worked = running.join().map_err(|_| "the thread panicked".into());
        worked.and_then(|worked: cuguard::Result<_>| {
            let done: Outcome<_> = worked.map_err(Into::into);
            done.map(|worked| (worked, (block, time)))
        })
    })?;

    report("checks meanwhile", checks as f64);
    report("wrong words meanwhile", wrong_meanwhile.get()? as f64);
    report("had 95 %", f64::from(u8::from(had.is_ok())));
    let mut kept = [None];
    if let Ok(block) = had {
        report("large ms", time);
        kept = [Some(block)];
    }
    // The large block has memory of its own: written, it changes no other.
    let large = Pieces::new(&context, &kept, piece)?;
    kernels.fill(&stream, &large, !SEED)?;
    let wrong = kernels.wrong(&context, &stream, &stay, seed)?
        + kernels.wrong(&context, &stream, &large, !SEED)?;
    report("wrong words", wrong as f64);
    let checked = stay.bytes() + large.bytes();
    report("checked GiB", checked as f64 / (1_u64 << 30) as f64);
    drop(ballast);
    Ok(())
}
