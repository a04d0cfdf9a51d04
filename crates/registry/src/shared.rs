//! Pages with small blocks of several contexts, as where these hold the same driver context.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::hash::BuildMixHasher;
use crate::pages::{PAGE, SharedPages, pages_of};
use crate::registry::Registry;

/// What each of these contexts has in pages with the others.
pub fn shared_pages(registries: &[&Registry]) -> Vec<SharedPages> {
    let mut all = vec![SharedPages::default(); registries.len()];
    let mut owners = HashMap::<u64, usize, BuildMixHasher>::default();
    for (index, registry) in registries.iter().enumerate() {
        registry.for_small_blocks(|address, bytes| {
            for page in pages_of(address, bytes) {
                match owners.entry(page) {
                    Entry::Vacant(vacant) => {
                        vacant.insert(index);
                        all[index].pages += 1;
                    }
                    Entry::Occupied(owner) if *owner.get() != index => {
                        let end = address.saturating_add(bytes.max(1));
                        let part = end.min((page + 1) * PAGE) - address.max(page * PAGE);
                        all[index].elsewhere_bytes += part;
                        all[*owner.get()].foreign_bytes += part;
                    }
                    Entry::Occupied(_) => {}
                }
            }
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{PAGE, SharedPages, shared_pages};
    use crate::{Entry, Key, Registry, ResourceKind, TrackingLevel};

    const KIB: u64 = 1 << 10;

    fn registry(blocks: &[(u64, u64)]) -> Registry {
        let registry = Registry::new(TrackingLevel::Sites, 8);
        for (address, bytes) in blocks {
            let entry = Entry {
                bytes: *bytes,
                type_name: "u8",
                stream: 0,
            };
            registry.insert(Key::new(ResourceKind::Device, *address), entry);
        }
        registry
    }

    #[test]
    fn a_page_is_the_first_ones_and_each_byte_is_somebodys() {
        let one = registry(&[(PAGE, KIB), (PAGE + KIB, KIB), (8 * PAGE, 4 * PAGE)]);
        // In the same page, across its end, and in pages of its own.
        let two = registry(&[
            (PAGE + 2 * KIB, KIB),
            (2 * PAGE - KIB, 3 * KIB),
            (5 * PAGE, KIB),
        ]);
        let three = registry(&[(5 * PAGE + KIB, KIB), (PAGE + 4 * KIB, KIB)]);
        let of = |pages, foreign_bytes, elsewhere_bytes| SharedPages {
            pages,
            foreign_bytes,
            elsewhere_bytes,
        };
        let all = shared_pages(&[&one, &two, &three]);
        let want = [of(1, 3 * KIB, 0), of(2, KIB, 2 * KIB), of(0, 0, 2 * KIB)];
        assert_eq!(all, want);
        let alone = shared_pages(&[&two]);
        assert_eq!(alone, [of(3, 0, 0)]);
    }
}
