//! `malloc` inside a kernel that gets nothing, noticed and explained.
//!
//!     cargo run --example device_heap
//!
//! What to see: 16384 threads ask for 4 KiB each, 64 MiB in all, and keep it. The device heap has
//! 8 MiB by default, so some get null, and the launch succeeds all the same: only the kernel's own
//! counts show it. Once such a kernel was launched the size of the heap is fixed, so a context of its
//! own gets a larger one, and there every thread gets its memory.

use cuguard::context::DeviceHeap;
use cuguard::{Context, DeviceBox, Module, Result, Stream};

const BLOCKS: u32 = 64;
const THREADS: u32 = 256;
const EACH: u64 = 4 << 10;

/// How many threads got their memory, and how many did not.
fn allocate_in_kernel(context: &Context) -> Result<(u64, u64)> {
    let module = Module::from_ptx(context, include_str!("../kernels/heap.ptx"))?;
    let kernel = module.function("heap_allocate")?;
    let stream = Stream::new(context)?;
    let mut granted = DeviceBox::new(context, &0_u64)?;
    let mut refused = DeviceBox::new(context, &0_u64)?;
    stream.scope(|s| {
        let (granted, refused) = (s.bind_mut(&mut granted)?, s.bind_mut(&mut refused)?);
        let keep = 1_u32;
        // SAFETY: these are the kernel's parameters; it writes the two counts.
        unsafe {
            s.launch(
                &kernel,
                (BLOCKS, THREADS),
                &[&EACH, &keep, &granted, &refused],
            )
        }
    })?;
    Ok((granted.get()?, refused.get()?))
}

fn run(name: &str, context: &Context) -> Result<u64> {
    let heap = DeviceHeap::current(context)?;
    let before = context.memory()?.free;
    let (granted, refused) = allocate_in_kernel(context)?;
    let taken = before.saturating_sub(context.memory()?.free);
    let asked = u64::from(BLOCKS * THREADS) * EACH;
    println!("{name}: {granted} threads got {EACH} bytes, {refused} got null");
    println!(
        "    asked for {} MiB ({BLOCKS} x {THREADS} threads x {EACH} bytes) of a heap of {} MiB; \
         the device has {} MiB less",
        asked >> 20,
        heap >> 20,
        taken >> 20
    );
    if refused > 0 {
        println!("    too small: set DeviceHeap::limit before the module is loaded, to more than");
        println!("    was asked for, as each block takes some for itself; or free in the kernel");
    }
    Ok(refused)
}

fn main() -> Result<()> {
    let context = Context::builder().dedicated().build()?;
    let refused = run("by default", &context)?;
    assert!(refused > 0);
    context.close()?;

    let context = Context::builder().dedicated().build()?;
    // Kept: it cannot be put back any more when the kernel was launched, and the context goes.
    DeviceHeap::limit(&context, 256 << 20)?.keep();
    let refused = run("with a larger heap", &context)?;
    assert_eq!(refused, 0);
    context.close()
}
