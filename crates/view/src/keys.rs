//! The group of each allocation.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::hash::Hash;

use cuguard_report::ByteSize;
use cuguard_report::phrase::stream;

use crate::by::By;
use crate::look::{Frames, UNKNOWN};
use crate::naming::SiteNames;
use crate::run::{Allocation, CallSite, Run};
use crate::words;

/// The group of each allocation of a run, as a number, and the names of these numbers.
#[derive(Debug)]
pub(crate) struct Keys<'r> {
    run: &'r Run,
    by: By,
    names: OnceCell<SiteNames<'r>>,
    /// For stack traces, functions and libraries by call site, for labels and threads by name: the first index with an equal one.
    first: Vec<u32>,
}

impl<'r> Keys<'r> {
    /// Of call sites by stack trace, those whose shown frames are equal are one: they would look the same.
    pub(crate) fn new(run: &'r Run, by: By, frames: Frames) -> Self {
        let names = OnceCell::new();
        let first = match by {
            By::Stack => first(run.sites.iter().map(|site| {
                let shown: Vec<_> = site.shown(frames).collect();
                (&site.type_name, shown)
            })),
            By::Function => {
                let names = names.get_or_init(|| SiteNames::of(run));
                first((0..run.sites.len()).map(|site| function(names, site as u64)))
            }
            By::Library => first(run.sites.iter().map(CallSite::library)),
            By::Label | By::Thread => first(run.names.iter().map(String::as_str)),
            By::Stream | By::Size | By::Kind => Vec::new(),
        };
        Self {
            run,
            by,
            names,
            first,
        }
    }

    pub(crate) fn of(&self, allocation: &Allocation) -> u64 {
        let first = |index: u32| {
            let first = self.first.get(index as usize);
            u64::from(first.copied().unwrap_or(0))
        };
        match self.by {
            By::Stack | By::Function | By::Library => first(allocation.site),
            By::Label => first(allocation.label),
            By::Thread => first(allocation.thread),
            By::Stream => allocation.stream,
            By::Size => size_class(allocation.bytes),
            By::Kind => u64::from(allocation.kind),
        }
    }

    /// The name of a group, as it is: it may have any characters.
    pub(crate) fn name(&self, key: u64) -> String {
        let site = || self.run.sites.get(key as usize);
        let named = |name: &str, otherwise: &str| match name {
            "" => otherwise.to_owned(),
            name => name.to_owned(),
        };
        let name = |otherwise| match self.run.names.get(key as usize) {
            Some(name) => named(name, otherwise),
            None => otherwise.to_owned(),
        };
        match self.by {
            By::Stack | By::Function => {
                let names = self.names.get_or_init(|| SiteNames::of(self.run));
                named(function(names, key), UNKNOWN)
            }
            By::Library => named(site().map_or("", CallSite::library), "unknown library"),
            By::Label => name("no label"),
            By::Thread => name("unnamed thread"),
            By::Stream if key == 0 => "no stream".to_owned(),
            By::Stream if key <= 2 => stream(key),
            By::Stream => format!("{key:#x}"),
            By::Size => size_name(key),
            By::Kind => match self.run.kinds.get(key as usize) {
                Some(kind) => words::kind(&kind.name).into_owned(),
                None => "unknown kind".to_owned(),
            },
        }
    }
}

fn function<'r>(names: &SiteNames<'r>, site: u64) -> &'r str {
    let frame = u32::try_from(site).ok().and_then(|site| names.frame(site));
    frame.map_or("", |frame| frame.function.as_str())
}

fn first<N: Eq + Hash>(names: impl Iterator<Item = N>) -> Vec<u32> {
    let mut known = HashMap::new();
    let numbered = (0..).zip(names);
    let first = numbered.map(|(index, name)| *known.entry(name).or_insert(index));
    first.collect()
}

/// 0 for no bytes, else one more than the exponent of the power of two below.
fn size_class(bytes: u64) -> u64 {
    u64::from(u64::BITS - bytes.leading_zeros())
}

fn size_name(class: u64) -> String {
    let low = match class {
        0 => return "no memory".to_owned(),
        1 => return "1 B".to_owned(),
        class => 1_u64 << (class - 1),
    };
    match low.checked_mul(2) {
        Some(high) => format!("{} to {}", ByteSize(low), ByteSize(high - 1)),
        None => format!("{} and more", ByteSize(low)),
    }
}

#[cfg(test)]
mod tests {
    use super::{size_class, size_name};

    #[test]
    fn sizes_are_grouped_by_powers_of_two() {
        for (bytes, name) in [
            (0, "no memory"),
            (1, "1 B"),
            (3, "2 B to 3 B"),
            (1024, "1 KiB to 2.00 KiB"),
            (u64::MAX, "8388608 TiB and more"),
        ] {
            assert_eq!(size_name(size_class(bytes)), name, "{bytes}");
        }
    }
}
