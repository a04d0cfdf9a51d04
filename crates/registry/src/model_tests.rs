//! Random sequences of everyresource that guards do, against a plain model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::{Amount, ContextInfo, Entry, Key, Registry, ResourceKind, TrackingLevel};

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, u16),
    Remove(u8),
    Escape(u8),
    Recapture(u8),
    Label(u8, u8),
    TrackingLevel(u8),
    Drain,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<u8>(), any::<u16>()).prop_map(|(key, bytes)| Step::Insert(key, bytes)),
        4 => any::<u8>().prop_map(Step::Remove),
        1 => any::<u8>().prop_map(Step::Escape),
        1 => any::<u8>().prop_map(Step::Recapture),
        2 => (any::<u8>(), 0_u8..4).prop_map(|(key, label)| Step::Label(key, label)),
        1 => (0_u8..3).prop_map(Step::TrackingLevel),
        1 => Just(Step::Drain),
    ]
}

/// What is known of one resource.
#[derive(Clone, Debug)]
struct Resource {
    bytes: u64,
    recorded: bool,
    escaped: bool,
    type_name: &'static str,
    label: Option<String>,
}

/// Few keys, so that steps meet.
fn key(byte: u8) -> Key {
    let kind = ResourceKind::ALL[usize::from(byte) % ResourceKind::COUNT];
    Key::new(kind, u64::from(byte / 16) + 1)
}

#[derive(Default)]
struct Model {
    resources: BTreeMap<Key, Resource>,
    allocated: BTreeMap<ResourceKind, u64>,
    peak: BTreeMap<ResourceKind, u64>,
}

impl Model {
    fn live(&self, kind: ResourceKind) -> Amount {
        let mut sum = Amount::default();
        for (_, resource) in self.resources.iter().filter(|(key, _)| key.kind == kind) {
            sum += Amount::new(1, resource.bytes);
        }
        sum
    }

    fn note_peak(&mut self, kind: ResourceKind) {
        let live = self.live(kind).bytes;
        let peak = self.peak.entry(kind).or_default();
        *peak = live.max(*peak);
    }

    fn groups(
        &self,
        escaped: bool,
    ) -> BTreeMap<(ResourceKind, &'static str, Option<String>), Amount> {
        let mut groups = BTreeMap::new();
        for (key, resource) in &self.resources {
            if resource.recorded && resource.escaped == escaped {
                let group = (key.kind, resource.type_name, resource.label.clone());
                *groups.entry(group).or_default() += Amount::new(1, resource.bytes);
            }
        }
        groups
    }
}

fn run(steps: &[Step]) {
    let registry = Registry::new(TrackingLevel::Sites, 8);
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Insert(byte, bytes) => insert(&registry, &mut model, key(*byte), *bytes),
            Step::Remove(byte) => {
                let key = key(*byte);
                if let Some(resource) = model.resources.remove(&key) {
                    let record = registry.remove(key, resource.bytes);
                    assert_eq!(
                        record.map(|r| r.bytes()),
                        resource.recorded.then_some(resource.bytes)
                    );
                }
            }
            Step::Escape(byte) => {
                if let Some(resource) = model.resources.get_mut(&key(*byte)) {
                    registry.escape(key(*byte), resource.bytes);
                    resource.type_name = if resource.recorded {
                        resource.type_name
                    } else {
                        ""
                    };
                    (resource.recorded, resource.escaped) = (true, true);
                }
            }
            Step::Recapture(byte) => {
                let resource = model
                    .resources
                    .get_mut(&key(*byte))
                    .filter(|resource| resource.escaped);
                assert_eq!(registry.recapture(key(*byte)).is_some(), resource.is_some());
                if let Some(resource) = resource {
                    resource.escaped = false;
                }
            }
            Step::Label(byte, label) => {
                let label = ["", "a", "b", "c"][usize::from(*label)];
                registry.label(key(*byte), label);
                if let Some(resource) = model.resources.get_mut(&key(*byte)).filter(|t| t.recorded)
                {
                    resource.label = Some(label.to_owned()).filter(|label| !label.is_empty());
                }
            }
            Step::TrackingLevel(byte) => registry.set_level(TrackingLevel::from_byte(*byte)),
            Step::Drain => {
                let drained = registry.drain();
                assert!(drained.is_sorted_by_key(|(key, _)| (key.kind.teardown_rank(), key.kind)));
                for (key, record) in drained {
                    let resource = model.resources.remove(&key).unwrap();
                    assert!(
                        resource.recorded && !resource.escaped && resource.bytes == record.bytes()
                    );
                }
                assert!(
                    model
                        .resources
                        .values()
                        .all(|resource| !resource.recorded || resource.escaped)
                );
            }
        }
        check(&registry, &model);
    }
}

fn insert(registry: &Registry, model: &mut Model, key: Key, bytes: u16) {
    // The driver returns a live address only if the program freed it without its guard, as escaped
    // resources are.
    if model
        .resources
        .get(&key)
        .is_some_and(|resource| !resource.escaped)
    {
        return;
    }
    let recorded = registry.level() != TrackingLevel::Counts;
    let type_name = if bytes.is_multiple_of(2) {
        "even"
    } else {
        "odd"
    };
    let bytes = if key.kind.is_memory() {
        u64::from(bytes)
    } else {
        0
    };
    // The registry adds before it takes the old one out, and so does the peak.
    let live = model.live(key.kind).bytes + bytes;
    let peak = model.peak.entry(key.kind).or_default();
    *peak = live.max(*peak);
    registry.insert(
        key,
        Entry {
            bytes,
            type_name,
            stream: 0,
        },
    );
    *model.allocated.entry(key.kind).or_default() += 1;
    let resource = Resource {
        bytes,
        recorded,
        escaped: false,
        type_name,
        label: None,
    };
    model.resources.insert(key, resource);
    model.note_peak(key.kind);
}

fn check(registry: &Registry, model: &Model) {
    let snapshot = registry.snapshot(ContextInfo::default());
    for kind in ResourceKind::ALL {
        let totals = registry.totals(*kind);
        assert_eq!(totals.live(), model.live(*kind));
        assert_eq!(
            totals.allocated,
            model.allocated.get(kind).copied().unwrap_or_default()
        );
        assert_eq!(
            totals.peak_bytes,
            model.peak.get(kind).copied().unwrap_or_default()
        );
        let unrecorded = model
            .resources
            .iter()
            .filter(|(k, t)| k.kind == *kind && !t.recorded);
        let known = snapshot.unrecorded.iter().find(|(k, _)| k == kind);
        assert_eq!(
            known.map_or(0, |(_, amount)| amount.count),
            unrecorded.count() as u64
        );
    }
    for (groups, escaped) in [(&snapshot.live, false), (&snapshot.escaped, true)] {
        let mut found: BTreeMap<_, Amount> = BTreeMap::new();
        for group in groups {
            assert_eq!(group.addresses.len() as u64, group.amount.count);
            let identity = (group.kind, group.type_name, group.label.clone());
            *found.entry(identity).or_default() += group.amount;
        }
        assert_eq!(found, model.groups(escaped));
        assert!(groups.is_sorted_by_key(|g| std::cmp::Reverse((g.amount.bytes, g.amount.count))));
    }
    assert_eq!(
        snapshot.is_clean(),
        model.resources.values().all(|resource| resource.escaped)
    );
}

proptest! {
    #![proptest_config(cuguard_testing::property_config!())]

    #[test]
    fn a_registry_equals_a_plain_model(steps in prop::collection::vec(step(), 0..60)) {
        run(&steps);
    }
}
