//! Which module has an address, at the time of a stack trace.

use std::collections::{BTreeSet, HashMap};

use cuguard_recording::Module;

/// An address of a stack trace, and how many of the last modules were loaded after that was captured.
pub(super) type Place = (u64, u32);

/// A bound of a module, or a call: in this order where addresses are equal.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    End { module: usize },
    Begin { module: usize },
    Call(Place),
}

/// The numbers of the modules with these addresses. A library that was unloaded may have had the same addresses as one that was
/// loaded later: the newest counts of those that a stack trace can have.
pub(super) fn find(
    modules: &[Module],
    places: impl Iterator<Item = Place>,
) -> HashMap<Place, usize> {
    let mut marks: Vec<(u64, Mark)> = Vec::new();
    for (index, module) in modules.iter().enumerate() {
        if module.start < module.end {
            marks.push((module.start, Mark::Begin { module: index }));
            marks.push((module.end, Mark::End { module: index }));
        }
    }
    // A call is the byte before its return address.
    marks.extend(places.filter_map(|place| Some((place.0.checked_sub(1)?, Mark::Call(place)))));
    marks.sort_unstable();
    let mut mapped = BTreeSet::new();
    let mut found = HashMap::new();
    for (_, mark) in marks {
        match mark {
            Mark::Begin { module } => {
                mapped.insert(module);
            }
            Mark::End { module } => {
                mapped.remove(&module);
            }
            Mark::Call(place) => {
                let known = modules.len().saturating_sub(place.1 as usize);
                if let Some(newest) = mapped.range(..known).next_back() {
                    found.insert(place, *newest);
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use cuguard_recording::Module;
    use proptest::prelude::*;

    use super::find;

    proptest! {
        #![proptest_config(cuguard_testing::property_config!())]

        #[test]
        fn the_newest_module_with_the_address_is_found(ranges in prop::collection::vec((0_u64..40, 0_u64..40), 0..12)) {
            let modules: Vec<Module> = (0..)
                .zip(&ranges)
                .map(|(bias, &(start, end))| Module { start, end, bias, ..Module::default() })
                .collect();
            let places = (0..45).flat_map(|address| (0..14).map(move |later| (address, later)));
            let found = find(&modules, places.clone());
            for (address, later) in places {
                let contains = |module: &&Module| address > module.start && address <= module.end;
                let known = modules.len().saturating_sub(later as usize);
                let newest = modules[..known].iter().rposition(|module| contains(&module));
                prop_assert_eq!(found.get(&(address, later)).copied(), newest, "{} {}", address, later);
            }
        }
    }
}
