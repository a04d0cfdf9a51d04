//! Contents checked by a kernel, on devices that run kernels.

use std::panic::Location;

use cuguard::{Context, DeviceBox, Kind, Module, Result, Stream};

use crate::guard::Guard;
use crate::mismatch::{Check, ensure_eq};
use crate::model::Record;
use crate::resource::Resource;
use crate::world::World;

/// The PTX of `kernels/pattern.cu`, which has `check_pattern`.
const PATTERN: &str = include_str!("../../../kernels/pattern.ptx");

/// The addresses and handles that a check creates and frees, and its result.
struct Used {
    site: &'static Location<'static>,
    stream: u64,
    module: u64,
    count: u64,
    wrong: u64,
}

#[track_caller]
fn count_wrong(context: &Context, guard: &Guard, seed: u32) -> Result<Used> {
    let words = match guard {
        Guard::Words(words) => words,
        Guard::One(one) => one.as_buffer(),
        _ => unreachable!("picked as words"),
    };
    let stream = Stream::new(context)?;
    let module = Module::from_ptx(context, PATTERN)?;
    let check = module.function("check_pattern")?;
    let mut wrong = DeviceBox::new(context, &0_u64)?;
    let count = words.len() as u64;
    stream.scope(|s| {
        let (words, wrong) = (s.bind(words)?, s.bind_mut(&mut wrong)?);
        // SAFETY: check_pattern(words, count, seed, mismatches) reads `count` words and writes one
        // number.
        unsafe { s.launch(&check, 4, 128, 0, &[&words, &count, &seed, &wrong]) }
    })?;
    Ok(Used {
        site: Location::caller(),
        stream: stream.as_raw().0 as u64,
        module: module.as_raw().0 as u64,
        count: wrong.as_device_ptr().as_raw(),
        wrong: wrong.get()?,
    })
}

impl World {
    /// Checks words with a kernel; on the simulated GPU, reads them.
    pub fn kernel(&mut self, number: u8) -> Check {
        let fits = |resource: &Resource| resource.seed.is_some() && resource.key.is_some();
        let Some(at) = self.pick(number, fits) else {
            return Ok(());
        };
        let (resource, slot) = (&self.resources[at], self.resources[at].slot);
        let (Some(context), Some(seed)) = (self.context_of(resource), resource.seed) else {
            return Ok(());
        };
        if self.simulated {
            return self.check_contents(resource);
        }
        let used = count_wrong(context, &resource.guard, seed)?;
        ensure_eq("words that a kernel finds wrong", used.wrong, 0)?;
        self.outcome.kernels += 1;
        let created = [
            ((Kind::Stream, used.stream), 0, ""),
            ((Kind::Module, used.module), 0, ""),
            ((Kind::Device, used.count), 8, "u64"),
        ];
        for (key, bytes, type_name) in created {
            self.created(slot, key, Record::new(bytes, type_name, used.site));
        }
        for (key, ..) in created {
            self.freed(slot, key);
        }
        Ok(())
    }
}
