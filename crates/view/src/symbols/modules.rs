//! Which module has an address.

use std::collections::BTreeSet;

use cuguard_recording::Module;

/// Modules by address. A library that was unloaded may have had the same addresses as one that was loaded later: the newest
/// counts.
pub(super) struct Modules<'r> {
    modules: &'r [Module],
    /// The first address of each part, in order, and the module that it belongs to.
    parts: Vec<(u64, Option<usize>)>,
}

impl<'r> Modules<'r> {
    pub(super) fn new(modules: &'r [Module]) -> Self {
        let mut bounds: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * modules.len());
        for (index, module) in modules.iter().enumerate() {
            if module.start < module.end {
                bounds.push((module.start, true, index));
                bounds.push((module.end, false, index));
            }
        }
        bounds.sort_unstable();
        let mut parts: Vec<(u64, Option<usize>)> = Vec::with_capacity(bounds.len());
        let mut mapped = BTreeSet::new();
        for (address, begins, index) in bounds {
            match begins {
                true => mapped.insert(index),
                false => mapped.remove(&index),
            };
            let newest = mapped.last().copied();
            match parts.last_mut() {
                Some((start, module)) if *start == address => *module = newest,
                _ => parts.push((address, newest)),
            }
        }
        Self { modules, parts }
    }

    /// The module of a call, which is the byte before its return address.
    pub(super) fn of(&self, address: u64) -> Option<&'r Module> {
        let call = address.checked_sub(1)?;
        let next = self.parts.partition_point(|(start, _)| *start <= call);
        let (_, module) = self.parts.get(next.checked_sub(1)?)?;
        self.modules.get((*module)?)
    }
}

#[cfg(test)]
mod tests {
    use cuguard_recording::Module;
    use proptest::prelude::*;

    use super::Modules;

    proptest! {
        #[test]
        fn the_newest_module_with_the_address_is_found(ranges in prop::collection::vec((0_u64..40, 0_u64..40), 0..12)) {
            let modules: Vec<Module> = (0..)
                .zip(&ranges)
                .map(|(bias, &(start, end))| Module { start, end, bias, ..Module::default() })
                .collect();
            let found = Modules::new(&modules);
            for address in 0..45 {
                let contains = |module: &&Module| address > module.start && address <= module.end;
                let newest = modules.iter().rev().find(contains);
                prop_assert_eq!(found.of(address), newest, "{}", address);
            }
        }
    }
}
