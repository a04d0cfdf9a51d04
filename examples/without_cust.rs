//! A program that builds with and without the feature `cust`: elements of its own, addresses, streams, launch sizes, errors.
//!
//!     cargo run --example without_cust
//!
//! What to see: the address of a buffer and the particles that came back from the device. `scripts/check-without-cust.sh`
//! builds this file outside the repository, without the feature and without `CUDA_LIBRARY_PATH`.

use bytemuck::{Pod, Zeroable};
use cuguard::code::Dim3;
use cuguard::memory::DevicePointer;
use cuguard::prelude::*;
use cuguard::{DeviceCopy, LaunchConfig};

/// An element with a derived `DeviceCopy`; the derived code names the crate `cust_core`.
#[derive(Clone, Copy, Debug, PartialEq, DeviceCopy, Pod, Zeroable)]
#[repr(C)]
struct Particle {
    position: [f32; 3],
    mass: f32,
}

/// A program's own type around an address.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Particles {
    start: DevicePointer<Particle>,
    len: usize,
}

fn main() -> cuguard::Result<()> {
    let context = Context::new(0)?;
    let stream = Stream::new(&context)?;
    let mut particles = DeviceBuffer::<Particle>::zeroed(&stream, 4)?;
    let heavy = Particle {
        position: [1.0, 2.0, 3.0],
        mass: 100.0,
    };
    particles.slice_mut(..2)?.fill(heavy)?;

    let all = Particles {
        start: particles.as_device_ptr(),
        len: particles.len(),
    };
    println!("{} particles at {:p}", all.len, all.start);
    let second = all.start.wrapping_add(1);
    assert_eq!(second, particles.slice(1..)?.as_device_ptr());
    assert_eq!(second.as_raw() - all.start.as_raw(), 16);

    let input = PinnedBuffer::from_slice(&context, &[heavy; 4])?;
    stream.scope(|s| s.upload(&mut s.bind_mut(&mut particles)?, &s.bind_host(&input)))?;
    assert_eq!(particles.to_vec()?, [heavy; 4]);

    let config = LaunchConfig::new((particles.len() as u32, 1), Dim3::from(256));
    println!("{:?} blocks of {:?} threads", config.grid(), config.block());

    let error = particles.copy_from_slice(&[heavy]).unwrap_err();
    println!("{error}");
    println!("{:?}", particles.to_vec()?[3]);
    drop((particles, stream, input));
    context.close()
}
