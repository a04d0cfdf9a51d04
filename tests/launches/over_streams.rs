//! Launches in scopes over several streams: they wait for what they conflict with.

use std::time::Duration;

use super::{Setup, observed_turn};
use crate::support::gate::Gate;
use crate::support::*;
use cuguard::scope::{DeviceMut, Kernel, Len};
use cuguard::{DeviceBuffer, Function, PinnedBuffer, Result, Scope, Stream};

const LEN: usize = 1000;

type Scale<'a> = (&'a [f32], &'a mut [f32], Len<u32>, f32);

#[derive(Clone, Copy, Debug)]
enum Way {
    Plain,
    Typed,
}

/// Launches `y = 2 x`.
fn double<'s, 'e>(
    way: Way,
    s: &Scope<'s, 'e>,
    (function, kernel): &(Function<'e>, Kernel<'e, Scale<'static>>),
    (x, y): (&DeviceMut<'s, f32>, &mut DeviceMut<'s, f32>),
) -> Result<()> {
    let config = (4, 256);
    match way {
        // SAFETY: scale(input, output, count, factor) accesses `count` elements of each, and writes the second.
        Way::Plain => unsafe { s.launch(function, config, &[&**x, &*y, &(LEN as u32), &2.0_f32]) },
        Way::Typed => kernel.launch(s, config, (x, y, 2.0)),
    }
}

/// What the other stream does with one of the two, behind a gate.
#[derive(Clone, Copy, Debug)]
enum Before {
    WritesInput,
    ReadsInput,
    ReadsOutput,
}

#[test]
fn a_launch_waits_for_what_it_conflicts_with() -> Result<()> {
    let _turn = observed_turn();
    let setup = Setup::new()?;
    let (copies, kernels) = (&setup.stream, &Stream::new(&setup.context)?);
    let function = setup.module.function("scale")?;
    // SAFETY: scale(input, output, count, factor) accesses `count` elements of each, with any grid.
    let kernel = unsafe { setup.module.kernel("scale")? };
    let functions = (function, kernel);
    let mut x = DeviceBuffer::from_slice(&setup.context, &[1.0_f32; LEN])?;
    let mut y = DeviceBuffer::<f32>::zeroed(&setup.context, LEN)?;
    let mut seen = PinnedBuffer::<f32>::zeroed(&setup.context, LEN)?;
    for way in [Way::Plain, Way::Typed] {
        for (before, waits) in [
            (Before::WritesInput, true),
            (Before::ReadsInput, false),
            (Before::ReadsOutput, true),
        ] {
            let gate = Gate::on(&setup.context, copies);
            Stream::scope_over([copies, kernels], |[copies, kernels]| {
                let (mut x, mut y) = (copies.bind_mut(&mut x)?, kernels.bind_mut(&mut y)?);
                let mut seen = copies.bind_host_mut(&mut seen);
                match before {
                    Before::WritesInput => copies.fill(&mut x, 3.0)?,
                    Before::ReadsInput => copies.download(&mut seen, &x)?,
                    Before::ReadsOutput => copies.download(&mut seen, &y)?,
                }
                double(way, kernels, &functions, (&x, &mut y))?;
                if waits {
                    std::thread::sleep(Duration::from_millis(20));
                    assert!(!kernels.stream().is_idle()?, "{way:?}, {before:?}");
                } else {
                    assert!(soon(|| kernels.stream().is_idle().unwrap()), "{way:?}");
                }
                gate.open();
                // What the kernel writes is read after it, on the other stream.
                copies.download(&mut seen, &y)
            })?;
            let expected = 2.0 * x.to_vec()?[0];
            assert_eq!(*seen, [expected; LEN], "{way:?}, {before:?}");
        }
    }
    Ok(())
}

/// A kernel that has memory twice uses it once.
#[test]
fn a_launch_may_have_the_same_memory_twice() -> Result<()> {
    let _turn = observed_turn();
    let setup = Setup::new()?;
    let (copies, kernels) = (&setup.stream, &Stream::new(&setup.context)?);
    let scale = setup.module.function("scale")?;
    let mut x = DeviceBuffer::from_slice(&setup.context, &[1.0_f32; LEN])?;
    Stream::scope_over([copies, kernels], |[copies, kernels]| {
        let mut x = copies.bind_mut(&mut x)?;
        let arguments: [&dyn cuguard::scope::KernelArgument<'_>; 4] =
            [&*x, &x, &(LEN as u32), &2.0_f32];
        // SAFETY: each thread reads an element before it writes it, and no other does.
        unsafe { kernels.launch(&scale, (4, 256), &arguments)? };
        // Later work of that stream is not waited for.
        let gate = Gate::on(&setup.context, kernels.stream());
        copies.fill(&mut x, 5.0)?;
        assert!(soon(|| copies.stream().is_idle().unwrap()));
        gate.open();
        Ok(())
    })?;
    assert_eq!(x.to_vec()?, [5.0; LEN]);
    Ok(())
}
