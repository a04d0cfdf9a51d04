//! Places that make things: a line of the program, the type that it makes, and at level *stacks*
//! the stack of calls. Equal places are stored once, and a record holds a number.
//!
//! The way in is short. Each thread remembers the places it used last, and finds its place there
//! without touching anything that other threads touch; else it looks in the table of the process,
//! which is split into shards; a place that is new to the process is copied there for good. Nothing
//! is allocated for a place that is known.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::{LazyLock, PoisonError, RwLock};

use dashmap::{DashMap, Entry};

use super::names::{BuildMix, SHARDS, mix};

/// The most frames of a stack that are recorded, whatever depth is asked for.
///
/// ```
/// let settings = cuguard::report::ReportSettings::text().depth(1000);
/// assert_eq!(settings.wanted_depth(), cuguard::snapshot::MAX_DEPTH);
/// ```
pub const MAX_DEPTH: usize = 128;

/// Frames of this crate lie on top of each stack: three where they are inlined, eight and more in a
/// debug build. They are recorded in addition to the depth that was asked for, and cut away in the
/// report.
const OWN_FRAMES: usize = 24;

const CAPACITY: usize = MAX_DEPTH + OWN_FRAMES;

/// The number of a place. 0 is an unknown place.
pub(super) type PlaceId = u32;

/// A place that makes things.
#[derive(Debug)]
pub(super) struct CallSite {
    id: PlaceId,
    pub(super) site: Option<&'static Location<'static>>,
    pub(super) type_name: &'static str,
    /// Return addresses, innermost first.
    pub(super) stack: Box<[usize]>,
}

/// A place as it is seen on the way in.
struct CallSiteRef<'a> {
    site: Option<&'static Location<'static>>,
    type_name: &'static str,
    stack: &'a [usize],
}

struct Places {
    /// By hash. Where two places have the same hash, the second is found under another hash that
    /// follows from it; see [`intern`].
    by_hash: DashMap<u64, &'static CallSite, BuildMix>,
    /// By number, from 1 on.
    by_id: RwLock<Vec<&'static CallSite>>,
}

static PLACES: LazyLock<Places> = LazyLock::new(|| Places {
    by_hash: DashMap::with_hasher_and_shard_amount(BuildMix::default(), SHARDS),
    by_id: RwLock::new(Vec::new()),
});

/// How many places a thread remembers; a power of two.
const RECENT: usize = 64;

thread_local! {
    static RECENTLY: [Cell<Option<&'static CallSite>>; RECENT] =
        const { [const { Cell::new(None) }; RECENT] };
    /// What a stack is captured into. On the stack it would have to be cleared each time.
    static FRAMES: RefCell<[usize; CAPACITY]> = const { RefCell::new([0; CAPACITY]) };
}

/// The number of the place with this site and type, and no stack.
pub(super) fn site(site: &'static Location<'static>, type_name: &'static str) -> PlaceId {
    intern(&CallSiteRef {
        site: Some(site),
        type_name,
        stack: &[],
    })
}

/// The number of the place with this site and type, and the stack of the caller, `depth` frames of
/// it.
pub(super) fn stack(
    site: Option<&'static Location<'static>>,
    type_name: &'static str,
    depth: usize,
) -> PlaceId {
    let into = |frames: &mut [usize; CAPACITY]| {
        // Addresses only: their names are looked up when somebody wants to read them.
        let count = cuguard_stack::capture(&mut frames[..depth.clamp(1, MAX_DEPTH) + OWN_FRAMES]);
        intern(&CallSiteRef {
            site,
            type_name,
            stack: &frames[..count],
        })
    };
    let known = FRAMES.try_with(|frames| {
        frames
            .try_borrow_mut()
            .ok()
            .map(|mut frames| into(&mut frames))
    });
    // A signal handler that allocates in the middle of this has an array of its own.
    known
        .ok()
        .flatten()
        .unwrap_or_else(|| into(&mut [0; CAPACITY]))
}

/// The place with this number.
pub(super) fn get(id: PlaceId) -> Option<&'static CallSite> {
    let index = (id as usize).checked_sub(1)?;
    let places = PLACES.by_id.read().unwrap_or_else(PoisonError::into_inner);
    places.get(index).copied()
}

#[inline]
fn intern(seen: &CallSiteRef<'_>) -> PlaceId {
    let place = RECENTLY.try_with(|recently| {
        let slot = &recently[seen.slot()];
        match slot.get() {
            Some(place) if seen.is(place) => Some(place),
            _ => {
                let place = find(seen, seen.hash());
                slot.set(place);
                place
            }
        }
    });
    let place = place.unwrap_or_else(|_| find(seen, seen.hash()));
    place.map_or(0, |place| place.id)
}

/// Finds the place in the table of the process, or enters it. None when there are too many.
#[cold]
#[inline(never)]
fn find(seen: &CallSiteRef<'_>, mut hash: u64) -> Option<&'static CallSite> {
    loop {
        let known = PLACES.by_hash.get(&hash).map(|place| *place);
        let place = match known {
            Some(place) => place,
            None => match PLACES.by_hash.entry(hash) {
                // Somebody was faster.
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    let place = enter(seen)?;
                    entry.insert(place);
                    return Some(place);
                }
            },
        };
        if seen.is(place) {
            return Some(place);
        }
        // Another place with the same hash: look under the next hash in the chain.
        hash = mix(hash, 1);
    }
}

fn enter(seen: &CallSiteRef<'_>) -> Option<&'static CallSite> {
    let mut places = PLACES.by_id.write().unwrap_or_else(PoisonError::into_inner);
    let id = PlaceId::try_from(places.len() + 1).ok()?;
    let place: &'static CallSite = Box::leak(Box::new(CallSite {
        id,
        site: seen.site,
        type_name: seen.type_name,
        stack: seen.stack.into(),
    }));
    places.push(place);
    Some(place)
}

/// Odd numbers with many different bits, so that the same frames in another order make another sum.
const SPREAD: [u64; 4] = [
    0x9fb2_1c65_1e98_df25,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
];

impl CallSiteRef<'_> {
    /// Where a thread remembers the place. This is on the way of every record, so it is less than a
    /// hash: places that meet here only take each other's slot.
    #[inline]
    fn slot(&self) -> usize {
        let site = self.site.map_or(0, |site| std::ptr::from_ref(site).addr());
        let start = site ^ self.type_name.as_ptr().addr().rotate_left(32);
        // A sum that does not depend on the order is added up in several lanes at once.
        let sum = self
            .stack
            .iter()
            .fold(0_usize, |sum, frame| sum.wrapping_add(*frame));
        let spread = ((start ^ sum) as u64).wrapping_mul(SPREAD[0]);
        (spread >> (u64::BITS - RECENT.trailing_zeros())) as usize
    }

    fn hash(&self) -> u64 {
        let site = self
            .site
            .map_or(0, |site| std::ptr::from_ref(site).addr() as u64);
        let name = self.type_name;
        let start = mix(mix(site, name.as_ptr().addr() as u64), name.len() as u64);
        // Four frames a step: within a step nothing waits for anything else.
        let frames = |chunk: &[usize]| {
            chunk
                .iter()
                .zip(SPREAD)
                .fold(0_u64, |sum, (frame, factor)| {
                    sum.wrapping_add((*frame as u64).wrapping_mul(factor))
                })
        };
        self.stack
            .chunks(SPREAD.len())
            .fold(start, |hash, chunk| mix(hash, frames(chunk)))
    }

    /// Sites and names are compared by where they lie, which is quick. The compiler may keep the
    /// same one in two places; a snapshot puts such groups together again.
    fn is(&self, place: &CallSite) -> bool {
        let same_site = match (self.site, place.site) {
            (Some(one), Some(other)) => std::ptr::eq(one, other),
            (None, None) => true,
            _ => false,
        };
        let same_stack = self.stack.len() == place.stack.len()
            // Some versions of `memcmp` take long over nothing at an address where nothing is.
            && (self.stack.is_empty() || *self.stack == *place.stack);
        same_site && std::ptr::eq(self.type_name, place.type_name) && same_stack
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;
    use std::thread;

    use super::{CallSiteRef, MAX_DEPTH, OWN_FRAMES, get, intern, site, stack};

    #[test]
    fn equal_places_have_one_number() {
        let here = Location::caller();
        assert_eq!(site(here, "f32"), site(here, "f32"));
        assert_ne!(site(here, "f32"), site(here, "f64"));
        let place = get(site(here, "f32")).unwrap();
        assert_eq!(
            (place.site, place.type_name, place.stack.len()),
            (Some(here), "f32", 0)
        );
        assert!(get(0).is_none() && get(u32::MAX).is_none());
    }

    #[test]
    fn a_loop_makes_one_stack_and_two_calls_make_two() {
        #[inline(never)]
        fn make() -> u32 {
            std::hint::black_box(stack(None, "u8", MAX_DEPTH))
        }
        // A number that the compiler does not know, or it would write the call three times.
        let ids: Vec<u32> = (0..std::hint::black_box(3)).map(|_| make()).collect();
        assert_eq!(ids[0], ids[1]);
        assert_eq!(ids[1], ids[2]);
        assert_ne!(make(), ids[0]);
        assert!(get(ids[0]).unwrap().stack.len() > 5);
    }

    #[test]
    fn depth_limits_the_stack() {
        fn deep(levels: usize) -> u32 {
            if levels == 0 {
                stack(None, "u8", 4)
            } else {
                std::hint::black_box(deep(levels - 1))
            }
        }
        assert_eq!(get(deep(50)).unwrap().stack.len(), 4 + OWN_FRAMES);
    }

    /// Places whose hashes meet are told apart: the table is filled with one under the hash that
    /// another will have.
    #[test]
    fn a_hash_that_two_places_share_does_not_join_them() {
        let one = CallSiteRef {
            site: None,
            type_name: "one",
            stack: &[1, 2, 3],
        };
        let other = CallSiteRef {
            site: None,
            type_name: "other",
            stack: &[4, 5, 6],
        };
        let place = super::find(&other, one.hash()).unwrap();
        let found = get(intern(&one)).unwrap();
        assert_ne!(found.id, place.id);
        assert_eq!((found.type_name, &*found.stack), ("one", &[1, 2, 3][..]));
        assert_eq!(intern(&one), found.id);
    }

    #[test]
    fn threads_that_enter_the_same_places_agree() {
        let here = Location::caller();
        let stacks: Vec<[usize; 2]> = (0..300).map(|i| [i, i + 1]).collect();
        let all: Vec<Vec<u32>> = thread::scope(|scope| {
            let enter = || {
                let seen = |stack| CallSiteRef {
                    site: Some(here),
                    type_name: "agreed",
                    stack,
                };
                stacks.iter().map(|stack| intern(&seen(stack))).collect()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(enter)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
        for (id, stack) in all[0].iter().zip(&stacks) {
            assert_eq!(*get(*id).unwrap().stack, stack[..]);
        }
    }
}
