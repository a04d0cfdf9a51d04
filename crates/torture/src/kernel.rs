//! Contents checked by a kernel.

use std::panic::Location;

use cuguard::{Context, DeviceBox, Module, ResourceKind, Result, Stream};

use crate::guard::Guard;
use crate::mismatch::{Check, ensure_eq};
use crate::model::{Key, Record};
use crate::resource::Resource;
use crate::world::World;

/// The PTX of `kernels/pattern.cu`, which has `check_pattern`.
const PATTERN: &str = include_str!("../pattern.ptx");

/// The number of wrong words, and what the check created and freed: keys, bytes and type names.
type Counted = (u64, [(Key, usize, &'static str); 3]);

fn count_wrong(context: &Context, guard: &Guard, seed: u32) -> Result<Counted> {
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
        unsafe { s.launch(&check, (4, 128), &[&words, &count, &seed, &wrong]) }
    })?;
    let created = [
        ((ResourceKind::Stream, stream.as_raw().0 as u64), 0, ""),
        ((ResourceKind::Module, module.as_raw().0 as u64), 0, ""),
        (
            (ResourceKind::Device, wrong.as_device_ptr().as_raw()),
            8,
            "u64",
        ),
    ];
    Ok((wrong.get()?, created))
}

impl World {
    /// Checks words with a kernel.
    pub fn kernel(&mut self, number: u8) -> Check {
        let fits = |resource: &Resource| resource.seed.is_some() && resource.key.is_some();
        let at = self.pick(number, fits)?;
        let (resource, slot) = (&self.resources[at], self.resources[at].slot);
        let (Some(context), Some(seed)) = (self.context_of(resource), resource.seed) else {
            return Ok(());
        };
        let (wrong, created) = count_wrong(context, &resource.guard, seed)?;
        ensure_eq("words that a kernel finds wrong", wrong, 0)?;
        self.outcome.kernels += 1;
        for (key, bytes, type_name) in created {
            self.created(slot, key, Record::new(bytes, type_name, Location::caller()));
        }
        for (key, ..) in created {
            self.freed(slot, key);
        }
        Ok(())
    }
}
