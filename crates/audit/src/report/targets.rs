//! What is searched for: the addresses of every record, and what being found means for it.
//!
//! Physical memory is reachable by its handle, and by each address that it is mapped at. What is mapped in a reserved
//! range is reachable if the range is: a program that has the first address of the range has the others. A module is reachable by
//! its functions and variables, and a library by its kernels.

use std::collections::{BTreeMap, HashMap};

use cuguard_registry::{Fate, Key, Record, Registry, ResourceKind};

use crate::search::{Outcome, Target};
use crate::state::{mappings, parts};

/// What becomes of a record.
#[derive(Debug)]
struct Known {
    fate: Fate,
    /// The number of the place where the address was found.
    place: Option<u32>,
    /// When the record was created, in nanoseconds. Threads run on after the search: one may free the address, and another be
    /// handed it.
    created: u64,
}

/// What becomes of each record.
#[derive(Debug, Default)]
pub(super) struct Fates {
    /// There may be millions.
    of: HashMap<Key, Known>,
    /// The places, each once.
    places: Vec<String>,
}

impl Fates {
    /// The fate of a record, and where its address was found. A record that is newer than the search has none.
    pub(super) fn get(&self, key: &Key, record: &Record) -> Option<(Fate, Option<&str>)> {
        let known = self.of.get(key)?;
        let place = known
            .place
            .and_then(|place| self.places.get(place as usize));
        (known.created == created(record)).then_some((known.fate, place.map(String::as_str)))
    }
}

/// When a record was created, in nanoseconds.
fn created(record: &Record) -> u64 {
    u64::try_from(record.created().as_nanos()).unwrap_or(u64::MAX)
}

/// Which targets lead to a record.
#[derive(Debug)]
enum FoundBy {
    One(usize),
    Any(Vec<usize>),
}

impl FoundBy {
    fn targets(&self) -> &[usize] {
        match self {
            Self::One(target) => std::slice::from_ref(target),
            Self::Any(targets) => targets,
        }
    }
}

/// What is searched for.
#[derive(Debug, Default)]
pub(super) struct Targets {
    pub(super) list: Vec<Target>,
    /// Which of them lead to each record, and when it was created.
    of: Vec<(Key, u64, FoundBy)>,
}

impl Targets {
    /// The addresses of all records, or of none if all are `known`.
    pub(super) fn of(registry: &Registry, known: impl Fn(&Key, &Record) -> bool) -> Self {
        let mut records: Vec<(Key, Record)> = Vec::new();
        let mut all_known = true;
        registry.for_each(|key, record| {
            all_known &= known(key, record);
            records.push((*key, *record));
        });
        if all_known {
            return Self::default();
        }
        let mut ranges = BTreeMap::new();
        let mut targets = Self::default();
        for (key, record) in &records {
            if key.kind == ResourceKind::AddressRange {
                let index = targets.add(key.address, record.bytes());
                ranges.insert(key.address, (record.bytes(), index));
                targets
                    .of
                    .push((*key, created(record), FoundBy::One(index)));
            }
        }
        let around = |address: u64| {
            let (start, (size, index)) = ranges.range(..=address).next_back()?;
            (address - start < *size).then_some(*index)
        };
        for (key, record) in &records {
            let found_by = match key.kind {
                ResourceKind::AddressRange => continue,
                ResourceKind::Physical => {
                    let mut all = vec![targets.add(key.address, 0)];
                    for (address, size) in mappings::ranges_of(key.address) {
                        all.push(targets.add(address, size));
                        all.extend(around(address));
                    }
                    FoundBy::Any(all)
                }
                ResourceKind::Mapped => {
                    let own = targets.add(key.address, record.bytes());
                    FoundBy::Any([own].into_iter().chain(around(key.address)).collect())
                }
                ResourceKind::Managed => {
                    let index = targets.add(key.address, record.bytes());
                    targets.list[index].is_managed = true;
                    FoundBy::One(index)
                }
                ResourceKind::Module | ResourceKind::Library => {
                    let mut all = vec![targets.add(key.address, 0)];
                    let parts = parts::of((key.kind, key.address)).into_iter();
                    all.extend(parts.map(|(part, bytes)| targets.add(part, bytes)));
                    FoundBy::Any(all)
                }
                _ if has_addresses(key, record) => {
                    FoundBy::One(targets.add(key.address, record.bytes()))
                }
                _ => FoundBy::One(targets.add(key.address, 0)),
            };
            targets.of.push((*key, created(record), found_by));
        }
        targets
    }

    fn add(&mut self, start: u64, len: u64) -> usize {
        self.list.push(Target {
            start,
            len,
            is_managed: false,
        });
        self.list.len() - 1
    }

    /// What becomes of each record. What was not found is lost, unless the search did not see all of the process.
    pub(super) fn fates(&self, outcome: Option<&Outcome>) -> Fates {
        let mut fates = Fates::default();
        let Some(outcome) = outcome else {
            return fates;
        };
        let not_found = match outcome.all_searched {
            true => Fate::Lost,
            false => Fate::Unclassified,
        };
        fates.places = outcome.places.iter().map(ToString::to_string).collect();
        let driver = fates.places.len();
        fates.places.push("the driver".to_owned());
        fates.of.reserve(self.of.len());
        for (key, created, found_by) in &self.of {
            let targets = found_by.targets().iter();
            let places = || {
                targets
                    .clone()
                    .filter_map(|target| *outcome.found.get(*target)?)
            };
            let is_reachable = |place: &usize| outcome.places[*place].is_reachable();
            let reachable = places().find(is_reachable);
            let (fate, place) = match (reachable.or_else(|| places().next()), key.kind) {
                (Some(place), _) if is_reachable(&place) => (Fate::Reachable, Some(place)),
                // With the host memory that alone has its address.
                (Some(place), _) => (not_found, Some(place)),
                // It was current on the thread that created it, and primary ones belong to the device.
                (None, ResourceKind::Context) => (Fate::Reachable, Some(driver)),
                (None, _) => (not_found, None),
            };
            let known = Known {
                fate,
                place: place.and_then(|place| u32::try_from(place).ok()),
                created: *created,
            };
            fates.of.insert(*key, known);
        }
        fates
    }
}

/// Whether the program may have addresses inside of it. Otherwise it is a handle.
fn has_addresses(key: &Key, record: &Record) -> bool {
    match key.kind {
        ResourceKind::Device
        | ResourceKind::StreamOrdered
        | ResourceKind::Pooled
        | ResourceKind::Pinned
        | ResourceKind::Registered
        | ResourceKind::WriteCombined
        | ResourceKind::Mapped
        | ResourceKind::GraphMemory
        | ResourceKind::AddressRange => true,
        // The handle of external memory belongs to no context.
        ResourceKind::Imported => record.context() != 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cuguard_registry::{Entry, Fate, Key, Registry, ResourceKind, TrackingLevel};

    use super::{Fates, Targets};
    use crate::search::{Outcome, Place};

    fn registry(records: &[(ResourceKind, u64, u64)]) -> Registry {
        let registry = Registry::new(TrackingLevel::Stacks, 8);
        for (kind, address, bytes) in records {
            let entry = Entry {
                bytes: *bytes,
                type_name: "",
                stream: 0,
            };
            registry.insert_stack(Key::by_address(*kind, *address), entry, &[1], 1);
        }
        registry
    }

    /// What the search finds, if these addresses are there.
    fn find(targets: &Targets, found: &[u64], all_searched: bool) -> Fates {
        let place = |target: &crate::search::Target| found.contains(&target.start).then_some(0);
        let outcome = Outcome {
            found: targets.list.iter().map(place).collect(),
            places: vec![Place::Heap],
            cut_short: None,
            all_searched,
            bytes_searched: 0,
            elapsed: Duration::ZERO,
        };
        targets.fates(Some(&outcome))
    }

    /// The fates if these addresses are found.
    fn fates(registry: &Registry, found: &[u64], all_searched: bool) -> Vec<(ResourceKind, Fate)> {
        let targets = Targets::of(registry, |_, _| false);
        let fates = find(&targets, found, all_searched);
        let mut all = Vec::new();
        registry.for_each(|key, record| {
            let (fate, _) = fates.get(key, record).expect("it was searched for");
            all.push((key.kind, fate));
        });
        all.sort_unstable();
        all
    }

    /// Threads run on after the search.
    #[test]
    fn a_record_with_the_address_of_another_has_no_fate() {
        let before = registry(&[(ResourceKind::Device, 0x1000, 16)]);
        let targets = Targets::of(&before, |_, _| false);
        let fates = find(&targets, &[], true);
        std::thread::sleep(Duration::from_millis(1));
        let after = registry(&[(ResourceKind::Device, 0x1000, 16)]);
        let get = |registry: &Registry| {
            let mut fate = None;
            registry.for_each(|key, record| fate = fates.get(key, record));
            fate
        };
        assert_eq!(get(&before), Some((Fate::Lost, None)));
        assert_eq!(get(&after), None);
    }

    #[test]
    fn what_is_not_found_is_lost() {
        let registry = registry(&[
            (ResourceKind::Device, 0x1000, 16),
            (ResourceKind::Stream, 0x77, 0),
        ]);
        let expected = [
            (ResourceKind::Device, Fate::Reachable),
            (ResourceKind::Stream, Fate::Lost),
        ];
        assert_eq!(fates(&registry, &[0x1000], true), expected);
        let expected = [
            (ResourceKind::Device, Fate::Reachable),
            (ResourceKind::Stream, Fate::Unclassified),
        ];
        assert_eq!(fates(&registry, &[0x1000], false), expected);
    }

    #[test]
    fn what_is_mapped_in_a_range_is_reachable_by_the_range() {
        let records = [
            (ResourceKind::AddressRange, 0x10_0000, 0x1_0000),
            (ResourceKind::Mapped, 0x10_8000, 0x1000),
            (ResourceKind::Mapped, 0x20_0000, 0x1000),
        ];
        let expected = [
            (ResourceKind::Mapped, Fate::Lost),
            (ResourceKind::Mapped, Fate::Reachable),
            (ResourceKind::AddressRange, Fate::Reachable),
        ];
        assert_eq!(fates(&registry(&records), &[0x10_0000], true), expected);
    }

    #[test]
    fn managed_memory_is_searched() {
        let registry = registry(&[
            (ResourceKind::Device, 0x1000, 16),
            (ResourceKind::Managed, 0x2000, 64),
        ]);
        let targets = Targets::of(&registry, |_, _| false).list;
        let managed = targets.iter().filter(|target| target.is_managed);
        let managed: Vec<_> = managed.map(|target| (target.start, target.len)).collect();
        assert_eq!(managed, [(0x2000, 64)]);
    }

    #[test]
    fn a_context_is_never_lost() {
        let registry = registry(&[(ResourceKind::Context, 0x5000, 0)]);
        let expected = [(ResourceKind::Context, Fate::Reachable)];
        assert_eq!(fates(&registry, &[], true), expected);
    }

    #[test]
    fn only_memory_is_found_by_addresses_inside() {
        let registry = registry(&[
            (ResourceKind::Device, 0x1000, 16),
            (ResourceKind::Array, 0x2000, 64),
        ]);
        let mut targets = Targets::of(&registry, |_, _| false).list;
        targets.sort_by_key(|target| target.start);
        let lengths: Vec<_> = targets.iter().map(|target| target.len).collect();
        assert_eq!(lengths, [16, 0]);
    }
}
