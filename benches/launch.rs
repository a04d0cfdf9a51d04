//! The cost of a launch: through a scope, untyped and typed, against a bare `cuLaunchKernel` of the same kernel on the same
//! stream with the same arguments; and of a graph's launch against a bare `cuGraphLaunch`.
//!
//!     cargo bench --bench launch
//!     cargo bench --bench launch -- --limit 1.05
//!
//! What to see: nanoseconds of host time per launch, best and median of many rounds, and the ratio to the bare call. The
//! ways alternate in every round, and the ratio is the median over the rounds, so that a change of the processor's clock
//! meets all of them. The context is current on the thread, and records counts. On the simulated GPU launches are checked
//! and skipped, and the figures say nothing about a real one.

#[path = "support/command.rs"]
mod command;

use std::ffi::c_void;
use std::process::ExitCode;
use std::ptr;
use std::time::Instant;

use command::{Command, Options};
use cuguard::driver::{DriverKind, api, load};
use cuguard::scope::{Kernel, Len};
use cuguard::{Context, DeviceBuffer, Module, Stream, TrackingLevel, sim};

const HELP: &str = "\
Measures what a launch costs in a scope over a bare cuLaunchKernel, and over a bare cuGraphLaunch.

    --limit RATIO   exit with code 1 if a ratio of medians is more than RATIO
    --test          a short run that only shows that it works
    --help          this text";

fn main() -> ExitCode {
    let command = Command {
        name: "launch",
        help: HELP,
        // Fewer launches in a round than a stream's queue holds, so that no launch waits for the device.
        long: (501, 200),
        short: (3, 20),
        figure: "a ratio of",
    };
    command.run(measure)
}

/// Prints the figures and returns the largest ratio.
fn measure(options: &Options) -> Result<f64, Box<dyn std::error::Error>> {
    sim::configure(sim::Config::new().skip_kernels(true))?;
    let driver = load()?;
    println!("in use: {driver}");
    if driver.kind() == DriverKind::Simulated {
        println!("simulated: these figures say nothing about a real GPU");
    }
    let context = Context::builder().level(TrackingLevel::Counts).build()?;
    let stream = Stream::new(&context)?;
    let module = Module::from_ptx(&context, include_str!("../kernels/launches.ptx"))?;
    let nothing = module.function("nothing")?;
    let scale = module.function("scale")?;
    // SAFETY: scale(input, output, count, factor) accesses `count` elements of each, with any grid.
    let typed = unsafe { module.kernel::<(&[f32], &mut [f32], Len<u32>, f32)>("scale")? };
    let input = DeviceBuffer::from_slice(&context, &[1.0_f32; 32])?;
    let mut output = DeviceBuffer::<f32>::zeroed(&context, 32)?;
    let _current = context.make_current()?;
    println!(
        "{:<44} {:>7} {:>8} {:>7}",
        "ns per launch", "best", "median", "ratio"
    );

    let (empty, raw) = (nothing.as_raw(), stream.as_raw());
    let ratios = stream.scope(|s| {
        let (from, mut to) = (s.bind(&input)?, s.bind_mut(&mut output)?);
        let (address_in, address_out) =
            (from.as_device_ptr().as_raw(), to.as_device_ptr().as_raw());
        let bare = |function, arguments: &mut [*mut c_void]| {
            // SAFETY: the arguments are the kernel's; module, stream and memory outlive the scope.
            unsafe {
                let extra = ptr::null_mut();
                let arguments = arguments.as_mut_ptr();
                api::cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, raw, arguments, extra)
            }
            .ok()
            .expect("a bare launch");
        };
        let wait = || stream.synchronize().expect("the launches run");
        let without = compare(
            options,
            &wait,
            &mut [
                ("no arguments: bare", &mut || bare(empty, &mut [])),
                ("no arguments: Scope::launch", &mut || {
                    // SAFETY: the kernel has no parameters and accesses nothing.
                    unsafe { s.launch(&nothing, (1, 32), &[]) }.expect("a launch");
                }),
            ],
        );
        // Both exclusive: the untyped launch reads the binding that the typed one borrows.
        let to = std::cell::RefCell::new(&mut to);
        let with = compare(
            options,
            &wait,
            &mut [
                ("four arguments: bare", &mut || {
                    let (mut x, mut y, mut count, mut factor) =
                        (address_in, address_out, 32_u32, 2.0_f32);
                    bare(
                        scale.as_raw(),
                        &mut [
                            (&raw mut x).cast(),
                            (&raw mut y).cast(),
                            (&raw mut count).cast(),
                            (&raw mut factor).cast(),
                        ],
                    );
                }),
                ("four arguments: Scope::launch", &mut || {
                    let to = to.borrow();
                    // SAFETY: scale(input, output, count, factor) accesses `count` elements of each.
                    unsafe { s.launch(&scale, (1, 32), &[&from, &**to, &32_u32, &2.0_f32]) }
                        .expect("a launch");
                }),
                ("four arguments: Kernel::launch", &mut || {
                    let mut to = to.borrow_mut();
                    typed
                        .launch(s, (1, 32), (&from, &mut **to, 2.0))
                        .expect("a launch");
                }),
            ],
        );
        Ok([without, with])
    })?;
    if driver.kind() == DriverKind::Real {
        assert_eq!(output.to_vec()?, [2.0; 32]);
    }
    let graph = graphs(options, &stream, &typed, &input, &mut output)?;
    over_streams(options, &context, &typed)?;
    Ok(ratios.into_iter().fold(graph, f64::max))
}

/// scale(input, output, count, factor).
type Scale<'a> = Kernel<'a, (&'static [f32], &'static mut [f32], Len<u32>, f32)>;

/// Compares launches of a captured graph of ten kernels.
fn graphs<'a>(
    options: &Options,
    stream: &'a Stream,
    scale: &Scale<'a>,
    input: &'a DeviceBuffer<f32>,
    output: &'a mut DeviceBuffer<f32>,
) -> cuguard::Result<f64> {
    let (graph, ()) = stream.capture(|s| {
        let (from, mut to) = (s.bind(input)?, s.bind_mut(output)?);
        (0..10).try_for_each(|_| scale.launch(s, (1, 32), (&from, &mut to, 2.0)))
    })?;
    let mut exec = graph.instantiate()?;
    let (graph, raw) = (exec.as_raw(), stream.as_raw());
    stream.scope(|s| {
        let mut bound = s.bind_graph(&mut exec)?;
        let wait = || stream.synchronize().expect("the launches run");
        Ok(compare(
            options,
            &wait,
            &mut [
                ("a graph of ten kernels: bare", &mut || {
                    // SAFETY: the graph is bound in this scope, whose stream this is.
                    let launched = unsafe { api::cuGraphLaunch(graph, raw) };
                    launched.ok().expect("a bare launch");
                }),
                ("a graph of ten kernels: Scope::launch_graph", &mut || {
                    s.launch_graph(&mut bound).expect("a launch");
                }),
            ],
        ))
    })
}

/// Compares launches of a scope over two streams with those of a scope on one: each records an event, and waits for that of
/// the other stream where both use the same memory. Its ratio is not compared with a limit: this orders streams, too.
fn over_streams(options: &Options, context: &Context, scale: &Scale<'_>) -> cuguard::Result<()> {
    let stream = || Stream::new(context);
    let (one, first, second) = (stream()?, stream()?, stream()?);
    let values = [1.0_f32; 32];
    let buffer = || DeviceBuffer::from_slice(context, &values);
    let (input, mut output, mut own, mut shared) = (buffer()?, buffer()?, buffer()?, buffer()?);
    one.scope(|s| {
        let (from, mut to) = (s.bind(&input)?, s.bind_mut(&mut output)?);
        Stream::scope_over([&first, &second], |[a, b]| {
            let (x, mut own) = (a.bind(&input)?, a.bind_mut(&mut own)?);
            let shared = std::cell::RefCell::new(a.bind_mut(&mut shared)?);
            let wait = || {
                for stream in [&one, &first, &second] {
                    stream.synchronize().expect("the launches run");
                }
            };
            compare(
                options,
                &wait,
                &mut [
                    ("a scope on one stream: Kernel::launch", &mut || {
                        let launched = scale.launch(s, (1, 32), (&from, &mut to, 2.0));
                        launched.expect("a launch");
                    }),
                    ("over two streams: on the same stream", &mut || {
                        let launched = scale.launch(a, (1, 32), (&x, &mut own, 2.0));
                        launched.expect("a launch");
                    }),
                    ("over two streams: in turns, same memory (2)", &mut || {
                        for on in [a, b] {
                            let mut to = shared.borrow_mut();
                            let launched = scale.launch(on, (1, 32), (&x, &mut *to, 2.0));
                            launched.expect("a launch");
                        }
                    }),
                ],
            );
            Ok(())
        })
    })
}

type Way<'a> = (&'a str, &'a mut dyn FnMut());

/// Prints the figures of several ways to launch the same, the first of which is bare, and returns the largest ratio.
fn compare(options: &Options, wait: &dyn Fn(), ways: &mut [Way<'_>]) -> f64 {
    let mut times = vec![Vec::with_capacity(options.rounds); ways.len()];
    for round in 0..=options.rounds {
        for ((_, launch), times) in ways.iter_mut().zip(&mut times) {
            let begin = Instant::now();
            for _ in 0..options.calls {
                launch();
            }
            let elapsed = begin.elapsed().as_nanos() as f64 / f64::from(options.calls);
            wait();
            // The first round loads the kernels.
            if round > 0 {
                times.push(elapsed);
            }
        }
    }
    let bare = times[0].clone();
    let mut largest: f64 = 0.0;
    for ((name, _), times) in ways.iter().zip(&times) {
        let ratios = times.iter().zip(&bare).map(|(time, bare)| time / bare);
        let ratio = median(ratios.collect());
        let best = times.iter().copied().fold(f64::INFINITY, f64::min);
        println!(
            "{name:<44} {best:>7.1} {:>8.1} {ratio:>7.3}",
            median(times.clone())
        );
        largest = largest.max(ratio);
    }
    largest
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
