//! Launches of the corpus on a device.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::FromRawFd as _;

use super::content::checksum;
use super::launch::{Argument, Launch, sums_text};
use super::modules::Module;
use crate::{Device, Loaded};

/// What a launch has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The launch.
    pub launch: Launch,
    /// The checksum of all buffers, and that of the lines it printed, if any.
    pub sums: (u64, Option<u64>),
    /// The buffers, one after the other.
    pub bytes: Vec<u8>,
    /// What it printed.
    pub printed: String,
}

impl Outcome {
    /// Whether it is as expected.
    #[must_use]
    pub fn is_expected(&self) -> bool {
        self.launch.expected == Some(self.sums)
    }

    /// The sums as a line of a launch has them.
    #[must_use]
    pub fn sums_text(&self) -> String {
        sums_text(self.sums)
    }
}

/// Loads a module and runs its launches. Each that fails is an error with the kernel's name.
///
/// Standard output goes to a file meanwhile, since drivers print there what kernels print.
///
/// # Errors
///
/// The module does not load.
pub fn run<'a>(
    device: &'a Device<'a>,
    module: &Module,
) -> Result<Vec<Result<Outcome, String>>, String> {
    let loaded = device.load(module.ptx)?;
    let launches = Launch::parse_all(module.launches)?;
    Ok(launches
        .into_iter()
        .map(|launch| {
            let kernel = launch.kernel.clone();
            one(device, &loaded, launch).map_err(|error| format!("{kernel}: {error}"))
        })
        .collect())
}

fn one(device: &Device<'_>, loaded: &Loaded<'_>, launch: Launch) -> Result<Outcome, String> {
    let function = loaded.function(&launch.kernel)?;
    let (mut arguments, mut buffers) = (Vec::new(), Vec::new());
    for argument in &launch.arguments {
        let (content, is_array) = match argument {
            Argument::Value(bytes) => {
                arguments.push(bytes.clone());
                continue;
            }
            Argument::Buffer(content) => (content, false),
            Argument::Array(content) => (content, true),
        };
        let bytes = content.bytes(buffers.len() as u64);
        let address = device.upload(&bytes)?;
        buffers.push((address, bytes.len()));
        let (count, size) = (content.count as u64, content.size() as u64);
        let values = match is_array {
            false => vec![address],
            // Memory information, parent, elements, bytes of one, address, extent, stride.
            true => vec![0, 0, count, size, address, count, size],
        };
        arguments.extend(values.iter().map(|own| own.to_le_bytes().to_vec()));
    }
    let (done, printed) = captured(|| {
        // SAFETY: the description names the arguments of the kernel, and buffers that it stays within.
        let launched = unsafe { function.launch(&launch.grid, &mut arguments) };
        launched.and_then(|()| device.synchronize())
    })?;
    done?;
    let mut bytes = Vec::new();
    for (address, len) in buffers {
        bytes.extend(device.read(address, len)?);
        device.free(address)?;
    }
    let mut lines: Vec<&str> = printed.lines().collect();
    lines.sort_unstable();
    let lines = (!lines.is_empty()).then(|| checksum(lines.join("\n").into_bytes()));
    let sums = (checksum(bytes.iter().copied()), lines);
    Ok(Outcome {
        launch,
        sums,
        bytes,
        printed,
    })
}

/// What `body` returns, and what is written to standard output meanwhile.
fn captured<T>(body: impl FnOnce() -> T) -> Result<(T, String), String> {
    let failed = |what: &str| format!("{what}: {}", std::io::Error::last_os_error());
    // SAFETY: the descriptors are this function's own; standard output is restored below.
    let (mut file, saved) = unsafe {
        let own = libc::memfd_create(c"printed".as_ptr(), 0);
        if own < 0 {
            return Err(failed("memfd_create"));
        }
        let file = File::from_raw_fd(own);
        // The driver prints through the C library, which may have text of before.
        libc::fflush(std::ptr::null_mut());
        let saved = libc::dup(1);
        if saved < 0 || libc::dup2(own, 1) < 0 {
            return Err(failed("dup"));
        }
        (file, saved)
    };
    let result = body();
    // SAFETY: as above.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        libc::dup2(saved, 1);
        libc::close(saved);
    }
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .map_err(|error| error.to_string())?;
    Ok((result, String::from_utf8_lossy(&bytes).into_owned()))
}
