//! 60 GiB of equal blocks, half of them freed, and then one block of 95 % of what was freed, with nothing else left on the
//! device.

use std::time::Instant;

use cuguard::{Context, DeviceBuffer, Stream, TrackingLevel};
use cust::memory::DeviceBuffer as CustBuffer;

use crate::adaptor::{Allocator, Driver, Own, block, context, large as large_block};
use crate::figures::{figure, note};
use crate::timing::Numbers;
use crate::{Options, Outcome};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The sizes of the blocks.
pub const SIZES: [u64; 6] = [64 * MIB, 9 * MIB, 3 * MIB, MIB, 512 * KIB, 64 * KIB];

/// Which half is freed.
#[derive(Clone, Copy)]
pub enum Half {
    EveryOther,
    AtRandom,
}

impl Half {
    pub const ALL: [Self; 2] = [Self::EveryOther, Self::AtRandom];

    /// Whether each block in turn is freed.
    pub fn choice(self) -> impl FnMut(usize) -> bool {
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        move |index| match self {
            Self::EveryOther => index % 2 == 0,
            Self::AtRandom => numbers.next(2) == 0,
        }
    }
}

/// The case's name, as the peers print it.
pub fn case(bytes: u64, half: Half) -> String {
    let size = match bytes {
        MIB.. => format!("{} MiB", bytes / MIB),
        _ => format!("{} KiB", bytes / KIB),
    };
    let half = match half {
        Half::EveryOther => "every other",
        Half::AtRandom => "half at random",
    };
    format!("{size}, {half}")
}

/// The rest of the device, allocated so that only what a pool frees can serve it. By `cust`, so that cuguard cannot free it
/// and does not count it.
pub struct Ballast {
    _blocks: Vec<CustBuffer<u8>>,
}

impl Ballast {
    /// All but so many bytes, about. The context must be current.
    pub fn leaving(context: &Context, bytes: u64) -> Outcome<Self> {
        let mut blocks = Vec::new();
        let mut step = 16 << 30;
        while step >= 32 * MIB {
            let fits = context.memory()?.free >= bytes + step;
            // SAFETY: nothing reads the memory.
            match fits.then(|| unsafe { CustBuffer::uninitialized(step as usize) }) {
                Some(Ok(block)) => blocks.push(block),
                _ => step /= 2,
            }
        }
        Ok(Self { _blocks: blocks })
    }
}

pub fn fill(options: &Options) -> Outcome {
    all::<Own>(options)?;
    if options.memory_pool {
        all::<Driver>(options)?;
    }
    Ok(())
}

fn all<A: Allocator>(options: &Options) -> Outcome {
    let begin = Instant::now();
    for half in Half::ALL {
        for bytes in SIZES {
            let case = case(bytes, half);
            if begin.elapsed() > options.seconds {
                note("fill", &case, A::NAME, "not run: no time left");
            } else if let Err(error) = one::<A>(options, &case, bytes, half) {
                note("fill", &case, A::NAME, &error.to_string());
            }
        }
    }
    Ok(())
}

fn milliseconds(begin: Instant) -> f64 {
    begin.elapsed().as_nanos() as f64 / 1e6
}

fn one<A: Allocator>(options: &Options, case: &str, bytes: u64, half: Half) -> Outcome {
    let context = context(TrackingLevel::Counts)?;
    let _current = context.make_current()?;
    let stream = Stream::new(&context)?;
    let before = context.memory()?.free;
    let pool = A::new(&context)?;
    let source = pool.on(&stream);
    let report = |name, value| figure("fill", case, A::NAME, name, value);

    let number = options.fill / bytes;
    let mut blocks: Vec<Option<DeviceBuffer<u8>>> = Vec::with_capacity(number as usize);
    let begin = Instant::now();
    while (blocks.len() as u64) < number {
        match block(&source, bytes as usize) {
            Ok(block) => blocks.push(Some(block)),
            Err(error) => {
                let text = format!("refused while filling, at block {}: {error}", blocks.len());
                note("fill", case, A::NAME, &text);
                break;
            }
        }
    }
    stream.synchronize()?;
    report("fill ms", milliseconds(begin));
    let held = before - context.memory()?.free;
    report(
        "held over live",
        held as f64 / (blocks.len() as u64 * bytes) as f64,
    );
    let ballast = Ballast::leaving(&context, options.fill / 120)?;

    let mut frees = half.choice();
    let (begin, mut freed) = (Instant::now(), 0_u32);
    for (index, block) in blocks.iter_mut().enumerate() {
        if frees(index) {
            *block = None;
            freed += 1;
        }
    }
    report(
        "free ns",
        begin.elapsed().as_nanos() as f64 / f64::from(freed),
    );
    stream.synchronize()?;

    // 95 %, and where that is refused what else can be had.
    let mut had = 0.0;
    for share in [0.95, 0.75, 0.5, 0.25, 0.1, 0.05] {
        let large = (u64::from(freed) * bytes) as f64 * share;
        let large = large as usize / 256 * 256;
        let say = |text: &str| {
            // The smaller ones only show what is left.
            if share == 0.95 {
                note("fill", case, A::NAME, text);
            }
        };
        let begin = Instant::now();
        let block = large_block(&pool, &stream, large, &say);
        stream.synchronize()?;
        let time = milliseconds(begin);
        if share == 0.95 {
            report("had 95 %", f64::from(u8::from(block.is_ok())));
        }
        if block.is_ok() {
            report("large ms", time);
            had = share;
            break;
        }
    }
    report("share of freed", had);
    drop(blocks);
    drop(ballast);
    stream.synchronize()?;
    Ok(())
}
