//! Call sites, interned: a line of the program, the type that it allocates, and at level *stacks* the
//! stack trace. Equal call sites are stored once for the life of the process; a record holds an id.
//!
//! Interning is on the path of every record, so it has three steps, the frequent one first:
//! a small cache of the thread, the sharded table of the process, and an insert under a lock. A known
//! call site allocates nothing.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::{LazyLock, PoisonError, RwLock};

use dashmap::{DashMap, Entry};

use cuguard_stack::Remembered;

use crate::hash::{BuildMixHasher, SHARDS, mix};
use crate::kind::TrackingLevel;
use crate::origin::Origin;

/// The most frames of a stack trace that are recorded, whatever depth is set.
///
/// ```
/// let settings = cuguard::report::ReportSettings::text().depth(1000);
/// assert_eq!(settings.wanted_depth(), cuguard::snapshot::MAX_DEPTH);
/// ```
pub const MAX_DEPTH: usize = 128;

/// Room for the frames of these crates on top of each stack: three where they are inlined, eight and
/// more in a debug build. They are recorded in addition to the depth, and the report cuts them.
const OWN_FRAMES: usize = 24;

const CAPACITY: usize = MAX_DEPTH + OWN_FRAMES;

/// The number of a call site; 0 is unknown.
pub(crate) type CallSiteId = u32;

/// A call site that allocates.
#[derive(Debug)]
pub(crate) struct CallSite {
    pub(crate) id: CallSiteId,
    pub(crate) site: Option<&'static Location<'static>>,
    pub(crate) type_name: &'static str,
    /// Frames of [`cuguard_stack::capture_frames`], innermost first: those of different libraries differ, also where one was loaded
    /// after the other at the same addresses.
    pub(crate) stack: Box<[usize]>,
}

impl CallSite {
    pub(crate) fn origin(&'static self) -> Origin {
        Origin {
            site: self.site.map(Into::into),
            stack: &self.stack,
        }
    }
}

/// A call site that is not interned yet.
struct CallSiteRef<'a> {
    site: Option<&'static Location<'static>>,
    type_name: &'static str,
    stack: &'a [usize],
}

struct CallSites {
    /// By hash. On a collision the second one is found under the next hash of a chain; see [`find`].
    by_hash: DashMap<u64, &'static CallSite, BuildMixHasher>,
    /// By id, from 1.
    by_id: RwLock<Vec<&'static CallSite>>,
}

static CALL_SITES: LazyLock<CallSites> = LazyLock::new(|| CallSites {
    by_hash: DashMap::with_hasher_and_shard_amount(BuildMixHasher::default(), SHARDS),
    by_id: RwLock::new(Vec::new()),
});

/// Call sites in a thread's cache; a power of two.
const CACHED: usize = 64;

thread_local! {
    static CACHE: [Cell<Option<&'static CallSite>>; CACHED] =
        const { [const { Cell::new(None) }; CACHED] };
    /// The call sites of stacks that the thread was on before, which it recognizes without a walk.
    static STACKS: RefCell<Option<Stacks>> = const { RefCell::new(None) };
    /// Other stacks are captured into this. A local array would have to be cleared each time.
    static FRAMES: RefCell<[usize; CAPACITY]> = const { RefCell::new([0; CAPACITY]) };
}

/// Interns the calling line, with as much of the stack as the level records.
#[inline]
pub(crate) fn intern(
    site: &'static Location<'static>,
    type_name: &'static str,
    level: TrackingLevel,
    depth: usize,
) -> CallSiteId {
    match level {
        TrackingLevel::Counts => 0,
        TrackingLevel::Sites => intern_ref(&CallSiteRef {
            site: Some(site),
            type_name,
            stack: &[],
        }),
        TrackingLevel::Stacks => intern_stack(Some(site), type_name, depth),
    }
}

/// The call sites of stacks of one thread.
struct Stacks {
    /// How many frames each has at most.
    depth: usize,
    call_sites: Remembered<Option<&'static CallSite>>,
}

/// Interns the calling stack, `depth` frames of it.
pub(crate) fn intern_stack(
    site: Option<&'static Location<'static>>,
    type_name: &'static str,
    depth: usize,
) -> CallSiteId {
    let depth = depth.clamp(1, MAX_DEPTH) + OWN_FRAMES;
    let remembered = STACKS.try_with(|stacks| {
        let mut stacks = stacks.try_borrow_mut().ok()?;
        let stacks = stacks.get_or_insert_with(|| Stacks {
            depth,
            call_sites: Remembered::new(depth),
        });
        if stacks.depth != depth {
            // Another context's. One is enough: most programs have one depth.
            return None;
        }
        stacks.call_sites.capture(|stack| {
            intern_call_site(&CallSiteRef {
                site,
                type_name,
                stack,
            })
        })
    });
    let Ok(Some(known)) = remembered else {
        return intern_walked(site, type_name, depth);
    };
    let wanted = CallSiteRef {
        site,
        type_name,
        stack: &known.stack,
    };
    match wanted.has_site_of(known) {
        true => known.id,
        // The compiler has merged the calls of two lines, or of two types, into one. The stack is the same.
        false => intern_ref(&wanted),
    }
}

/// The same by a walk.
#[cold]
#[inline(never)]
fn intern_walked(
    site: Option<&'static Location<'static>>,
    type_name: &'static str,
    depth: usize,
) -> CallSiteId {
    let capture = |frames: &mut [usize; CAPACITY]| {
        // Without names; reports resolve them.
        let count = cuguard_stack::capture_frames(&mut frames[..depth]);
        intern_ref(&CallSiteRef {
            site,
            type_name,
            stack: &frames[..count],
        })
    };
    let id = FRAMES.try_with(|frames| Some(capture(&mut *frames.try_borrow_mut().ok()?)));
    // A signal handler that allocates while this runs finds the array borrowed.
    id.ok()
        .flatten()
        .unwrap_or_else(|| capture(&mut [0; CAPACITY]))
}

/// Interns a stack that the caller captured. `None` when ids run out.
pub(crate) fn intern_frames(stack: &[usize], type_name: &'static str) -> Option<&'static CallSite> {
    intern_call_site(&CallSiteRef {
        site: None,
        type_name,
        stack,
    })
}

/// The call site with this id.
pub(crate) fn get(id: CallSiteId) -> Option<&'static CallSite> {
    let index = (id as usize).checked_sub(1)?;
    let by_id = CALL_SITES.by_id.read();
    by_id
        .unwrap_or_else(PoisonError::into_inner)
        .get(index)
        .copied()
}

impl Origin {
    /// The origin of an interned call site.
    pub(crate) fn of(id: CallSiteId) -> Self {
        get(id).map_or_else(Self::default, CallSite::origin)
    }

    /// A stack that the caller captured, innermost frame first.
    ///
    /// ```
    /// assert_eq!(cuguard_registry::Origin::from_frames(&[7, 8]).stack, [7, 8]);
    /// ```
    #[must_use]
    pub fn from_frames(stack: &[usize]) -> Self {
        intern_frames(stack, "").map_or_else(Self::default, CallSite::origin)
    }

    /// The calling stack, at every level.
    #[must_use]
    pub fn here() -> Self {
        Self::of(intern_stack(None, "", MAX_DEPTH))
    }
}

#[inline]
fn intern_ref(wanted: &CallSiteRef<'_>) -> CallSiteId {
    intern_call_site(wanted).map_or(0, |found| found.id)
}

#[inline]
fn intern_call_site(wanted: &CallSiteRef<'_>) -> Option<&'static CallSite> {
    let cached = CACHE.try_with(|cache| {
        let entry = &cache[wanted.cache_index()];
        match entry.get() {
            Some(known) if wanted.equals(known) => Some(known),
            _ => {
                let found = find(wanted, wanted.hash());
                entry.set(found);
                found
            }
        }
    });
    cached.unwrap_or_else(|_| find(wanted, wanted.hash()))
}

/// Finds the call site in the table of the process, or inserts it. `None` when ids run out.
#[cold]
#[inline(never)]
fn find(wanted: &CallSiteRef<'_>, mut hash: u64) -> Option<&'static CallSite> {
    loop {
        let known = CALL_SITES.by_hash.get(&hash).map(|known| *known);
        let known = match known {
            Some(known) => known,
            None => match CALL_SITES.by_hash.entry(hash) {
                // Another thread was faster.
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    let new = insert(wanted)?;
                    entry.insert(new);
                    return Some(new);
                }
            },
        };
        if wanted.equals(known) {
            return Some(known);
        }
        // A collision: continue with the next hash of the chain.
        hash = mix(hash, 1);
    }
}

fn insert(wanted: &CallSiteRef<'_>) -> Option<&'static CallSite> {
    let by_id = CALL_SITES.by_id.write();
    let mut by_id = by_id.unwrap_or_else(PoisonError::into_inner);
    let new: &'static CallSite = Box::leak(Box::new(CallSite {
        id: CallSiteId::try_from(by_id.len() + 1).ok()?,
        site: wanted.site,
        type_name: wanted.type_name,
        stack: wanted.stack.into(),
    }));
    by_id.push(new);
    Some(new)
}

/// Odd factors with many different bits: the same frames in another order give another sum.
const FACTORS: [u64; 4] = [
    0x9fb2_1c65_1e98_df25,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
];

impl CallSiteRef<'_> {
    fn site_address(&self) -> usize {
        self.site.map_or(0, |site| std::ptr::from_ref(site).addr())
    }

    /// The index in the thread's cache. Cheaper than a hash, because every record computes it; call
    /// sites that collide here only evict each other.
    #[inline]
    fn cache_index(&self) -> usize {
        let start = self.site_address() ^ self.type_name.as_ptr().addr().rotate_left(32);
        // A sum does not depend on the order, so the compiler can vectorize it.
        let sum = self
            .stack
            .iter()
            .fold(0_usize, |sum, frame| sum.wrapping_add(*frame));
        let product = ((start ^ sum) as u64).wrapping_mul(FACTORS[0]);
        (product >> (u64::BITS - CACHED.trailing_zeros())) as usize
    }

    fn hash(&self) -> u64 {
        let (site, name) = (self.site_address() as u64, self.type_name);
        let start = mix(mix(site, name.as_ptr().addr() as u64), name.len() as u64);
        // Four frames a step, without dependencies within a step.
        let chunks = self.stack.chunks(FACTORS.len());
        chunks.fold(start, |hash, chunk| {
            let products = chunk.iter().zip(FACTORS);
            let sum = products.fold(0_u64, |sum, (frame, factor)| {
                sum.wrapping_add((*frame as u64).wrapping_mul(factor))
            });
            mix(hash, sum)
        })
    }

    /// Compares sites and type names by address, which is fast. The compiler may store equal ones
    /// twice; a snapshot merges such groups.
    fn equals(&self, known: &CallSite) -> bool {
        let same_stack = self.stack.len() == known.stack.len()
            // Some versions of `memcmp` are slow for empty slices at dangling addresses.
            && (self.stack.is_empty() || *self.stack == *known.stack);
        same_stack && self.has_site_of(known)
    }

    #[inline]
    fn has_site_of(&self, known: &CallSite) -> bool {
        self.site.map(std::ptr::from_ref) == known.site.map(std::ptr::from_ref)
            && std::ptr::eq(self.type_name, known.type_name)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;
    use std::thread;

    use super::{CallSiteRef, MAX_DEPTH, OWN_FRAMES, find, get, intern, intern_ref, intern_stack};
    use crate::kind::TrackingLevel;

    fn site(here: &'static Location<'static>, type_name: &'static str) -> u32 {
        intern(here, type_name, TrackingLevel::Sites, 8)
    }

    #[test]
    fn equal_call_sites_have_one_id() {
        let here = Location::caller();
        assert_eq!(site(here, "f32"), site(here, "f32"));
        assert_ne!(site(here, "f32"), site(here, "f64"));
        let found = get(site(here, "f32")).unwrap();
        assert_eq!(
            (found.site, found.type_name, found.stack.len()),
            (Some(here), "f32", 0)
        );
        assert!(get(0).is_none() && get(u32::MAX).is_none());
    }

    #[test]
    fn a_loop_has_one_stack_and_two_calls_have_two() {
        #[inline(never)]
        fn allocate() -> u32 {
            std::hint::black_box(intern_stack(None, "u8", MAX_DEPTH))
        }
        // `black_box`, because otherwise the compiler unrolls the loop.
        let ids: Vec<u32> = (0..std::hint::black_box(3)).map(|_| allocate()).collect();
        assert_eq!(ids[0], ids[1]);
        assert_eq!(ids[1], ids[2]);
        assert_ne!(allocate(), ids[0]);
        assert!(get(ids[0]).unwrap().stack.len() > 5);
    }

    /// The stack is the same, so the thread recognizes it; line, type and depth are what the caller passes.
    #[test]
    fn a_remembered_stack_is_one_of_its_line_its_type_and_its_depth() {
        #[inline(never)]
        fn allocate(
            here: &'static Location<'static>,
            type_name: &'static str,
            depth: usize,
        ) -> u32 {
            std::hint::black_box(intern_stack(Some(here), type_name, depth))
        }
        let lines = [Location::caller(), Location::caller()];
        let cases = [
            (lines[0], "f32", 64),
            (lines[1], "f32", 64),
            (lines[0], "f64", 64),
            (lines[0], "f32", 3),
        ];
        // `black_box`, because otherwise the compiler unrolls the loops.
        let round = || -> Vec<u32> {
            let all = std::hint::black_box(&cases[..]).iter();
            all.map(|(here, type_name, depth)| allocate(here, type_name, *depth))
                .collect()
        };
        let rounds = 0..std::hint::black_box(4);
        let rounds: Vec<Vec<u32>> = rounds.map(|_| round()).collect();
        assert!(rounds.iter().all(|ids| *ids == rounds[0]), "{rounds:?}");
        for (id, (here, type_name, depth)) in rounds[0].iter().zip(cases) {
            let found = get(*id).unwrap();
            assert_eq!((found.site, found.type_name), (Some(here), type_name));
            assert!(found.stack.len() <= depth + OWN_FRAMES);
        }
        let stack = |index: usize| &get(rounds[0][index]).unwrap().stack;
        assert_eq!(stack(0), stack(1));
        assert_eq!(stack(0), stack(2));
    }

    #[test]
    fn depth_limits_the_stack() {
        fn deep(levels: usize) -> u32 {
            if levels == 0 {
                intern_stack(None, "u8", 4)
            } else {
                std::hint::black_box(deep(levels - 1))
            }
        }
        assert_eq!(get(deep(50)).unwrap().stack.len(), 4 + OWN_FRAMES);
    }

    /// Inserts one call site under the hash that another one will have.
    #[test]
    fn a_hash_collision_does_not_merge_call_sites() {
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
        let inserted = find(&other, one.hash()).unwrap();
        let found = get(intern_ref(&one)).unwrap();
        assert_ne!(found.id, inserted.id);
        assert_eq!((found.type_name, &*found.stack), ("one", &[1, 2, 3][..]));
        assert_eq!(intern_ref(&one), found.id);
    }

    #[test]
    fn threads_that_intern_the_same_call_sites_agree() {
        let here = Location::caller();
        let stacks: Vec<[usize; 2]> = (0..300).map(|i| [i, i + 1]).collect();
        let all: Vec<Vec<u32>> = thread::scope(|scope| {
            let intern_all = || {
                let call_site = |stack| CallSiteRef {
                    site: Some(here),
                    type_name: "agreed",
                    stack,
                };
                stacks
                    .iter()
                    .map(|stack| intern_ref(&call_site(stack)))
                    .collect()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(intern_all)).collect();
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
