//! Pages in which several contexts have small blocks, as where they hold one context of the driver's:
//! whose page it is, and whose bytes lie in it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::names::BuildMix;
use super::pages::PAGE;
use super::table::Registry;

/// What one context has in pages with others. A page is the first one's that has a block in it, in the
/// order in which they are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// How many pages with small blocks are its own.
    pub pages: u64,
    /// The bytes of others in these.
    pub guests: u64,
    /// Its own bytes in the pages of others.
    pub away: u64,
}

/// What each of these contexts has in pages with the others.
pub fn shared(registries: &[&Registry]) -> Vec<Shared> {
    let mut all = vec![Shared::default(); registries.len()];
    let mut owners = HashMap::<u64, usize, BuildMix>::default();
    for (index, registry) in registries.iter().enumerate() {
        registry.for_small_blocks(|address, bytes| {
            // A small block may lie across the end of a page.
            let end = address.saturating_add(bytes.max(1));
            for page in address / PAGE..=(end - 1) / PAGE {
                match owners.entry(page) {
                    Entry::Vacant(vacant) => {
                        vacant.insert(index);
                        all[index].pages += 1;
                    }
                    Entry::Occupied(owner) if *owner.get() != index => {
                        let begin = address.max(page * PAGE);
                        let part = end.min((page + 1) * PAGE) - begin;
                        all[index].away += part;
                        all[*owner.get()].guests += part;
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
    use super::{PAGE, Shared, shared};
    use crate::{Entry, Key, Kind, Level, Registry};

    const KIB: u64 = 1 << 10;

    fn registry(blocks: &[(u64, u64)]) -> Registry {
        let registry = Registry::new(Level::Sites, 8);
        for (address, bytes) in blocks {
            let entry = Entry {
                bytes: *bytes,
                type_name: "u8",
                stream: 0,
            };
            registry.insert(Key::new(Kind::Device, *address), entry);
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
        let of = |pages, guests, away| Shared {
            pages,
            guests,
            away,
        };
        let all = shared(&[&one, &two, &three]);
        let want = [of(1, 3 * KIB, 0), of(2, KIB, 2 * KIB), of(0, 0, 2 * KIB)];
        assert_eq!(all, want);
        let alone = shared(&[&two]);
        assert_eq!(alone, [of(3, 0, 0)]);
    }
}
