//! Launches of all kinds: typed and untyped, with 64 KiB of dynamic shared memory, cooperative, and CUDA C++ compiled while
//! the program runs.
//!
//!     cargo run --example kernels
//!
//! What to see: a line for each kernel, whose results are compared with the same computation on the host. In the end the
//! driver has all of its memory back.

use cuguard::nvrtc;
use cuguard::prelude::*;
use cuguard::scope::{KernelArgument, Len};
use cuguard::{Error, LaunchConfig, Result};

const COUNT: usize = 1 << 20;

/// What the kernels run on.
struct Device {
    context: Context,
    stream: Stream,
}

/// Prints whether a result is the expected one, and fails if it is not.
fn check<T: PartialEq>(what: &str, found: &[T], expected: &[T]) {
    assert!(found == expected, "{what}: wrong results");
    println!("{what}: {} results are right", found.len());
}

/// The parameters are declared once, with what the kernel guarantees; the launch is safe.
fn typed(device: &Device, module: &Module) -> Result<()> {
    // SAFETY: scale(input, output, count, factor) accesses elements of both slices whose index is below `count`, with any
    // grid, and nothing else.
    let scale = unsafe { module.kernel::<(&[f32], &mut [f32], Len<u32>, f32)>("scale")? };
    let numbers: Vec<f32> = (0..COUNT).map(|i| i as f32).collect();
    let input = DeviceBuffer::from_slice(&device.context, &numbers)?;
    let mut output = DeviceBuffer::zeroed(&device.context, COUNT)?;
    let config = LaunchConfig::for_elements(scale.function(), COUNT)?;
    device.stream.scope(|s| {
        let (input, mut output) = (s.bind(&input)?, s.bind_mut(&mut output)?);
        scale.launch(s, config, (&input, &mut output, 2.0))
    })?;
    let expected: Vec<f32> = numbers.iter().map(|number| 2.0 * number).collect();
    check("typed launch", &output.to_vec()?, &expected);
    Ok(())
}

/// More than 48 KiB of shared memory are set by the launch itself.
fn large_shared_memory(device: &Device, module: &Module) -> Result<()> {
    const TILE: usize = 16_384;
    let reverse = module.function("reverse_tiles")?;
    let mut words: Vec<u32> = (0..COUNT as u32).collect();
    let mut buffer = DeviceBuffer::from_slice(&device.context, &words)?;
    let config = LaunchConfig::new(64, 1024).shared_bytes(64 << 10);
    device.stream.scope(|s| {
        let buffer = s.bind_mut(&mut buffer)?;
        let tiles = (COUNT / TILE) as u32;
        // SAFETY: reverse_tiles(words, tiles) accesses `tiles` tiles of 16384 words, and has shared memory for one.
        unsafe { s.launch(&reverse, config, &[&buffer, &tiles]) }
    })?;
    words.chunks_mut(TILE).for_each(<[u32]>::reverse);
    check("64 KiB of shared memory", &buffer.to_vec()?, &words);
    Ok(())
}

/// All blocks run at the same time, and wait for each other.
fn cooperative(device: &Device, module: &Module) -> Result<()> {
    let sum = module.function("sum_everywhere")?;
    let blocks = sum.max_cooperative_blocks(256, 0)?;
    let words: Vec<u32> = (0..COUNT as u32)
        .map(|i| i.wrapping_mul(2_654_435_761))
        .collect();
    let buffer = DeviceBuffer::from_slice(&device.context, &words)?;
    let mut partial = DeviceBuffer::<u32>::zeroed(&device.context, blocks as usize)?;
    let mut arrived = DeviceBox::new(&device.context, &0_u32)?;
    let mut sums = DeviceBuffer::<u32>::zeroed(&device.context, blocks as usize)?;
    device.stream.scope(|s| {
        let (words, partial) = (s.bind(&buffer)?, s.bind_mut(&mut partial)?);
        let (arrived, sums) = (s.bind_mut(&mut arrived)?, s.bind_mut(&mut sums)?);
        let arguments: [&dyn KernelArgument<'_>; 5] =
            [&words, &(COUNT as u32), &partial, &arrived, &sums];
        let config = LaunchConfig::new(blocks, 256).cooperative();
        // SAFETY: sum_everywhere(words, count, partial, arrived, sums) reads `count` words, and accesses an element of
        // `partial` and of `sums` for each block.
        unsafe { s.launch(&sum, config, &arguments) }
    })?;
    let expected = words
        .iter()
        .fold(0_u32, |sum, word| sum.wrapping_add(*word));
    let expected = vec![expected; blocks as usize];
    check("cooperative launch", &sums.to_vec()?, &expected);
    Ok(())
}

/// CUDA C++ in the program.
fn run_time_compiled(device: &Device) -> Result<()> {
    let source = r#"
        extern "C" __global__ void square(unsigned *x, unsigned n) {
            unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) x[i] *= x[i];
        }
    "#;
    let module = match Module::from_cuda(&device.context, source) {
        Err(Error::Nvrtc(error @ nvrtc::Error::LibraryMissing { .. })) => {
            println!("NVRTC: not run: {error}");
            return Ok(());
        }
        module => module?,
    };
    // SAFETY: square(x, n) accesses elements whose index is below `n`, each in one thread, with any grid.
    let square = unsafe { module.kernel::<(&mut [u32], Len<u32>)>("square")? };
    let numbers: Vec<u32> = (0..COUNT as u32).collect();
    let mut buffer = DeviceBuffer::from_slice(&device.context, &numbers)?;
    let config = LaunchConfig::for_elements(square.function(), COUNT)?;
    device
        .stream
        .scope(|s| square.launch(s, config, (&mut s.bind_mut(&mut buffer)?,)))?;
    let expected: Vec<u32> = numbers.iter().map(|x| x.wrapping_mul(*x)).collect();
    check("NVRTC", &buffer.to_vec()?, &expected);
    Ok(())
}

fn main() -> Result<()> {
    let context = Context::new(0)?;
    println!("on {}", context.device_name());
    let device = Device {
        stream: Stream::new(&context)?,
        context,
    };
    let module = Module::from_ptx(&device.context, include_str!("../kernels/launches.ptx"))?;
    typed(&device, &module)?;
    large_shared_memory(&device, &module)?;
    cooperative(&device, &module)?;
    run_time_compiled(&device)?;
    let Device { context, stream } = device;
    drop((module, stream));
    println!("bytes alive: {}", context.live_bytes());
    context.close()
}
