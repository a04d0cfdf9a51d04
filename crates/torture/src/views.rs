//! Views: partial copies, copies on the device, fills, and clones, done on the device and in the model.

use std::ops::Range;
use std::panic::Location;

use cuguard::{Error, Result};

use crate::guard::{Guard, pattern};
use crate::make::Made;
use crate::mismatch::{Check, Expected, ensure, ensure_eq, expect};
use crate::resource::Resource;
use crate::world::{World, scope_label};

/// The byte that fills.
const FILL: u8 = 0xA7;

/// Three bytes, which the driver cannot fill with.
const TRIPLE: [u8; 3] = [1, 2, 3];

/// The part of memory of this length that two numbers select: any beginning, and a part of the rest.
fn part_of(len: usize, begin: u8, size: u8) -> Range<usize> {
    let begin = (len + 1) * usize::from(begin) / 256;
    begin..begin + (len - begin) * usize::from(size) / 15
}

impl World {
    /// Work on a part of memory on the device, with another one for copies.
    pub fn view(&mut self, [to, from]: [u8; 2], begin: u8, work: u8) -> Check {
        let on_device = |resource: &Resource| resource.guard.is_on_device();
        let to = self.pick(to, on_device)?;
        let id = self.resources[to].id;
        let from = self.pick(from, |one| on_device(one) && one.id != id).ok();
        let part = part_of(self.resources[to].contents.len(), begin, work >> 4);
        match (work & 7, from) {
            (0, _) => self.write_part(to, part, begin),
            (1, _) => self.read_part(to, part),
            (2, _) => self.change_part(to, part, Fill::Byte),
            (3, _) => self.change_part(to, part, Fill::Triple),
            (4, _) => self.change_part(to, part, Fill::Zero),
            (5, _) => self.outside(to, begin),
            (_, Some(from)) => self.copy_part(to, from, part),
            (_, None) => self.copy_within(to, part),
        }?;
        self.check_contents(&self.resources[to])
    }

    /// Replaces a part in the model, if the device did the same.
    fn replace(&mut self, at: usize, done: Option<()>, part: Range<usize>, bytes: &[u8]) {
        if done.is_some() && !part.is_empty() {
            let resource = &mut self.resources[at];
            resource.contents[part].copy_from_slice(bytes);
            resource.seed = None;
        }
    }

    fn write_part(&mut self, at: usize, part: Range<usize>, seed: u8) -> Check {
        let expected = self.expected(&self.resources[at]);
        let bytes = pattern(seed, part.len());
        let view = self.resources[at].guard.view_mut()?;
        let written = view.into_slice(part.clone())?.copy_from_slice(&bytes);
        let done = expect("a partial write", written, expected)?;
        self.replace(at, done, part, &bytes);
        Ok(())
    }

    fn read_part(&mut self, at: usize, part: Range<usize>) -> Check {
        let resource = &self.resources[at];
        let read = resource.guard.view()?.slice(part.clone())?.to_vec();
        match expect("a partial read", read, self.expected(resource))? {
            Some(bytes) => ensure_eq("a part", &bytes[..], &resource.contents[part]),
            None => Ok(()),
        }
    }

    fn change_part(&mut self, at: usize, mut part: Range<usize>, fill: Fill) -> Check {
        if fill == Fill::Triple {
            part.end -= part.len() % TRIPLE.len();
        }
        let expected = self.expected(&self.resources[at]);
        let view = self.resources[at].guard.view_mut()?;
        let mut view = view.into_slice(part.clone())?;
        let filled = match fill {
            Fill::Byte => view.fill(FILL),
            Fill::Triple => view.cast::<[u8; 3]>()?.fill(TRIPLE),
            Fill::Zero => view.zero(),
        };
        let done = expect("a partial fill", filled, expected)?;
        let bytes = match fill {
            Fill::Byte => vec![FILL; part.len()],
            Fill::Triple => TRIPLE.repeat(part.len() / TRIPLE.len()),
            Fill::Zero => vec![0; part.len()],
        };
        self.replace(at, done, part, &bytes);
        Ok(())
    }

    /// A range that the memory does not have.
    fn outside(&self, at: usize, beyond: u8) -> Check {
        let resource = &self.resources[at];
        let end = resource.contents.len() + 1 + usize::from(beyond);
        let error = resource.guard.view()?.slice(..end).err();
        let expected = matches!(error, Some(Error::RangeOutOfBounds { .. }));
        ensure(expected, || format!("a range outside: {error:?}"))
    }

    /// Copies from other memory, of this context or of another.
    fn copy_part(&mut self, to: usize, from: usize, part: Range<usize>) -> Check {
        let len = self.resources[from].contents.len().min(part.len());
        let (part, source) = (part.start..part.start + len, 0..len);
        let both = [to, from].map(|at| self.expected(&self.resources[at]));
        let expected = match both {
            [Expected::Success, expected] => expected,
            [expected, _] => expected,
        };
        let bytes = self.resources[from].contents[source.clone()].to_vec();
        let Ok([target, from]) = self.resources.get_disjoint_mut([to, from]) else {
            unreachable!("picked as two resources");
        };
        let mut view = target.guard.view_mut()?.into_slice(part.clone())?;
        let copied = view.copy_from(from.guard.view()?.slice(source)?);
        let done = expect("a copy on the device", copied, expected)?;
        self.replace(to, done, part, &bytes);
        Ok(())
    }

    /// Copies the back of a part to its front.
    fn copy_within(&mut self, at: usize, part: Range<usize>) -> Check {
        let expected = self.expected(&self.resources[at]);
        let half = part.len() / 2;
        let view = self.resources[at].guard.view_mut()?;
        let (mut front, back) = view.into_slice(part.clone())?.into_split_at(half)?;
        let copied = front.copy_from(back.slice(..half)?);
        let done = expect("a copy within memory", copied, expected)?;
        let (begin, mid) = (part.start, part.start + half);
        let bytes = self.resources[at].contents[mid..mid + half].to_vec();
        self.replace(at, done, begin..mid, &bytes);
        Ok(())
    }

    /// Clones device memory, on the same stream and from the same pool.
    pub fn try_clone(&mut self, number: u8, label: u8) -> Check {
        let fits =
            |guard: &Guard| matches!(guard, Guard::Bytes(_) | Guard::Words(_) | Guard::One(_));
        let at = self.pick(number, |resource| fits(&resource.guard))?;
        let resource = &self.resources[at];
        let scope = cuguard::label(scope_label(label));
        let (site, clone) = clone_of(&resource.guard);
        drop(scope);
        let Some(guard) = expect("a clone", clone, self.expected(resource))? else {
            return Ok(());
        };
        let handle_of = |id: u64| {
            let handle = self.shared.iter().find(|handle| handle.id == id);
            handle.map(|handle| (id, handle.key.1))
        };
        let made = Made {
            kind: resource.kind,
            address: guard.view()?.as_device_ptr().as_raw(),
            guard,
            contents: resource.contents.clone(),
            seed: resource.seed,
            site,
            stream: resource.stream.and_then(handle_of),
            pool: resource.pool,
        };
        self.add(resource.slot, made, Some(label))
    }
}

/// What a fill writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fill {
    Byte,
    Triple,
    Zero,
}

#[track_caller]
fn clone_of(guard: &Guard) -> (&'static Location<'static>, Result<Guard>) {
    let clone = match guard {
        Guard::Bytes(buffer) => buffer.try_clone().map(Guard::Bytes),
        Guard::Words(buffer) => buffer.try_clone().map(Guard::Words),
        Guard::One(one) => one.try_clone().map(Guard::One),
        other => unreachable!("picked as device memory: {other:?}"),
    };
    (Location::caller(), clone)
}
