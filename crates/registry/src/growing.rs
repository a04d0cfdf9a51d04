//! Which call sites grow, and which of their frames tells them apart.
//!
//! Call sites are added up by their innermost frame: an allocator that caches gets its memory through any of them. Where that frame is a
//! function that allocates for others, one of its callers may grow and another not. So a frame is looked through as long as it has
//! several callers and some of them grow by themselves.
//!
//! What a frame is, the caller decides: this file only compares them.

use std::collections::BTreeMap;

use crate::growth::{LEAST, Rise, SiteSteps, Steps, growth};

/// How many frames are looked through.
const HELPERS: usize = 8;

/// A call site, for [`growing`].
#[derive(Clone, Debug, Default)]
pub struct CallerSteps<K> {
    /// Its frames, the innermost first.
    pub frames: Vec<K>,
    /// What it held.
    pub steps: SiteSteps,
}

/// Call sites that grow together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growing {
    /// Their indices, in order.
    pub sites: Vec<usize>,
    /// How many of their frames they have in common, from the innermost on: with several, none of them grows by itself.
    pub common: usize,
    /// The blocks by which they grew.
    pub rise: Rise,
}

/// The call sites that grow, in the order of their frames.
///
/// ```
/// use std::time::Duration;
/// use cuguard_registry::{CallerSteps, SiteSteps, Steps, growing};
///
/// let steps = Steps {
///     times: (1..=20).map(Duration::from_millis).collect(),
///     work: (1..=20).map(|step| step * 10).collect(),
///     ..Steps::default()
/// };
/// let site = |frames: &[&'static str], live: fn(u64) -> u64| CallerSteps {
///     frames: frames.to_vec(),
///     steps: SiteSteps { live: (1..=20).map(live).collect(), ..SiteSteps::default() },
/// };
/// let sites = [
///     site(&["checked_alloc", "load", "main"], |step| 20 - step),
///     site(&["checked_alloc", "train", "main"], |step| step),
/// ];
/// let found = growing(&steps, &sites);
/// assert_eq!((found.len(), found[0].sites.as_slice()), (1, &[1][..]));
/// ```
#[must_use]
pub fn growing<K: Ord>(steps: &Steps, sites: &[CallerSteps<K>]) -> Vec<Growing> {
    let tree = Tree { steps, sites };
    tree.among((0..sites.len()).collect(), 0)
}

struct Tree<'a, K> {
    steps: &'a Steps,
    sites: &'a [CallerSteps<K>],
}

impl<K: Ord> Tree<'_, K> {
    /// Those of `sites` that grow, told apart by the frame at `depth`.
    fn among(&self, sites: Vec<usize>, depth: usize) -> Vec<Growing> {
        let mut by_frame: BTreeMap<Option<&K>, Vec<usize>> = BTreeMap::new();
        for site in sites {
            let frame = self.sites[site].frames.get(depth);
            by_frame.entry(frame).or_default().push(site);
        }
        let rows = by_frame.into_iter().flat_map(|(frame, sites)| {
            // Without another frame there is nothing to tell them apart by.
            let callers = match frame {
                Some(_) => self.among_callers(&sites, depth + 1),
                None => Vec::new(),
            };
            match callers.is_empty() {
                true => self.together(sites).into_iter().collect(),
                false => callers,
            }
        });
        rows.collect()
    }

    /// Those that grow by themselves, told apart by the first frame from `depth` on that they do not have in common.
    fn among_callers(&self, sites: &[usize], depth: usize) -> Vec<Growing> {
        let frame = |site: &usize, depth: usize| self.sites[*site].frames.get(depth);
        let differs = (depth..HELPERS).find(|depth| {
            let first = sites.first().and_then(|site| frame(site, *depth));
            sites.iter().any(|site| frame(site, *depth) != first)
        });
        differs.map_or_else(Vec::new, |depth| self.among(sites.to_vec(), depth))
    }

    /// Call sites as one.
    fn together(&self, sites: Vec<usize>) -> Option<Growing> {
        let mut sum = SiteSteps::default();
        for site in &sites {
            sum.add(&self.sites[*site].steps);
        }
        let rise = growth(self.steps, &sum).rise()?;
        // What was lost once here and once there is no growth.
        if rise.only_lost && self.most_lost(&sites) < LEAST {
            return None;
        }
        let common = self.common(&sites);
        Some(Growing {
            sites,
            common,
            rise,
        })
    }

    /// The most blocks that are lost of call sites with the same frames.
    fn most_lost(&self, sites: &[usize]) -> u64 {
        let mut lost: BTreeMap<&[K], u64> = BTreeMap::new();
        for site in sites {
            let CallerSteps { frames, steps } = &self.sites[*site];
            *lost.entry(frames).or_default() += steps.lost;
        }
        lost.into_values().max().unwrap_or(0)
    }

    fn common(&self, sites: &[usize]) -> usize {
        let frames = |site: &usize| &self.sites[*site].frames[..];
        let Some((first, rest)) = sites.split_first() else {
            return 0;
        };
        let with = |site: &usize| {
            let pairs = frames(first).iter().zip(frames(site));
            pairs.take_while(|(one, other)| one == other).count()
        };
        rest.iter().map(with).min().unwrap_or(frames(first).len())
    }
}
