//! Live bytes over time, by group.

use std::collections::HashMap;

use crate::by::By;
use crate::keys::Keys;
use crate::look::Frames;
use crate::run::{Allocation, Run};
use crate::sweep::Sweep;

/// Which memory a timeline shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// Device memory.
    #[default]
    Device,
    /// All memory, that of the host too.
    All,
}

/// Live bytes over time.
///
/// Bucket `i` covers the time from `i * width` up to `(i + 1) * width`. It shows the moment with the most live bytes in
/// it, so that no peak is lost, and all series of a bucket are of that one moment, so that they add up to the total.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The length of a bucket in nanoseconds.
    pub width: u64,
    /// For each bucket, the moment that it shows, in nanoseconds since the [origin](crate::Run::origin).
    pub times: Vec<u64>,
    /// For each bucket, the live bytes.
    pub total: Vec<u64>,
    /// The groups that were ever largest, the largest first, and last the sum of all others, if there are others.
    pub series: Vec<Series>,
}

/// The live bytes of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Its name, as the program has it: with any characters.
    pub name: String,
    /// A call site with this name, an index of [`Run::sites`](crate::Run::sites); none for the sum of all others.
    pub site: Option<u32>,
    /// How many groups it is the sum of: 1, but for the sum of all others.
    pub groups: u64,
    /// For each bucket, the live bytes.
    pub bytes: Vec<u64>,
}

/// Live bytes over time, in `buckets` equal parts of the run (at least 1), for the `most` largest groups.
///
/// ```
/// use cuguard_view::{Allocation, By, FOREVER, RecordedKind, Memory, Run, timeline};
///
/// let device = RecordedKind { name: "device".to_owned(), on_device: true, is_memory: true };
/// let block = Allocation { start: 10, end: 25, bytes: 512, ..Allocation::default() };
/// let run = Run { kinds: vec![device], allocations: vec![block], end: 39, ..Run::default() };
/// let timeline = timeline(&run, 4, By::Kind, Memory::Device, 10);
/// assert_eq!(timeline.total, [0, 512, 512, 0]);
/// assert_eq!(timeline.series[0].bytes, timeline.total);
/// ```
#[must_use]
pub fn timeline(run: &Run, buckets: usize, by: By, memory: Memory, most: usize) -> Timeline {
    let keys = Keys::new(run, by, Frames::Program);
    let shape = Shape::new(run, buckets);
    let peaks = Peaks::find(run, &keys, memory, &shape);
    let (series, of_group) = peaks.series(&keys, most, shape.buckets);
    let mut timeline = Timeline {
        width: shape.width,
        times: peaks.times,
        total: peaks.total,
        series,
    };
    fill(&mut timeline, run, memory, |allocation| {
        of_group[&keys.of(allocation)]
    });
    timeline
}

struct Shape {
    buckets: usize,
    width: u64,
}

impl Shape {
    fn new(run: &Run, buckets: usize) -> Self {
        let buckets = buckets.max(1);
        // The end belongs to the last bucket.
        let width = (run.end / buckets as u64).saturating_add(1);
        Self { buckets, width }
    }

    fn bucket(&self, time: u64) -> usize {
        usize::try_from(time / self.width).map_or(self.buckets - 1, |at| at.min(self.buckets - 1))
    }
}

fn bytes(run: &Run, memory: Memory, allocation: &Allocation) -> u64 {
    match memory {
        Memory::Device => run.device_bytes(allocation),
        Memory::All => run.amount(allocation).bytes,
    }
}

/// The first pass: when each bucket is at its peak, and how large each group ever was.
struct Peaks {
    times: Vec<u64>,
    total: Vec<u64>,
    /// By group: the most live bytes, and a call site.
    groups: HashMap<u64, (u64, u32)>,
}

impl Peaks {
    fn find(run: &Run, keys: &Keys<'_>, memory: Memory, shape: &Shape) -> Self {
        let begin = |bucket: usize| bucket as u64 * shape.width;
        let mut peaks = Self {
            times: (0..shape.buckets).map(begin).collect(),
            total: vec![0; shape.buckets],
            groups: HashMap::new(),
        };
        let mut live = 0_u64;
        // The live bytes of each group, their maximum and a call site.
        let mut groups: HashMap<u64, (u64, u64, u32)> = HashMap::new();
        // The bucket that `live` is the state of.
        let mut at = 0;
        let mut sweep = Sweep::new(run);
        while let Some(time) = sweep.next_time() {
            let bucket = shape.bucket(time);
            // What is alive from before is the first state of each bucket, unless it changes at its very begin.
            while at < bucket {
                at += 1;
                if begin(at) < time {
                    peaks.total[at] = live;
                }
            }
            sweep.step(|allocation, begins| {
                let bytes = bytes(run, memory, allocation);
                let group = groups.entry(keys.of(allocation));
                let group = group.or_insert((0, 0, allocation.site));
                if begins {
                    live = live.wrapping_add(bytes);
                    group.0 = group.0.wrapping_add(bytes);
                    group.1 = group.1.max(group.0);
                } else {
                    live = live.wrapping_sub(bytes);
                    group.0 = group.0.wrapping_sub(bytes);
                }
            });
            if live > peaks.total[bucket] || time == begin(bucket) {
                (peaks.times[bucket], peaks.total[bucket]) = (time, live);
            }
        }
        for later in at + 1..shape.buckets {
            peaks.total[later] = live;
        }
        let groups = groups.into_iter();
        peaks.groups = groups
            .map(|(key, (_, most, site))| (key, (most, site)))
            .collect();
        peaks
    }

    /// Empty series for the largest groups, and the index of each group's.
    fn series(
        &self,
        keys: &Keys<'_>,
        most: usize,
        buckets: usize,
    ) -> (Vec<Series>, HashMap<u64, usize>) {
        let groups = self.groups.iter();
        let mut sorted: Vec<_> = groups
            .map(|(key, (bytes, site))| (*bytes, *key, *site))
            .collect();
        sorted.sort_by_key(|(bytes, key, _)| (u64::MAX - bytes, *key));
        // Groups without memory, such as streams, have no series of their own.
        let with_memory = sorted.iter().take_while(|(bytes, ..)| *bytes > 0).count();
        let shown = with_memory.min(most);
        let mut series: Vec<Series> = sorted[..shown]
            .iter()
            .map(|(_, key, site)| Series {
                name: keys.name(*key),
                site: Some(*site),
                groups: 1,
                bytes: vec![0; buckets],
            })
            .collect();
        if sorted.len() > shown {
            series.push(Series {
                name: "other".to_owned(),
                site: None,
                groups: (with_memory - shown) as u64,
                bytes: vec![0; buckets],
            });
        }
        let of_group = sorted.iter().enumerate();
        let of_group = of_group.map(|(index, (_, key, _))| (*key, index.min(shown)));
        (series, of_group.collect())
    }
}

/// The second pass: the live bytes of each series at the moment that each bucket shows.
fn fill(timeline: &mut Timeline, run: &Run, memory: Memory, of: impl Fn(&Allocation) -> usize) {
    let mut live = vec![0_u64; timeline.series.len()];
    let mut sweep = Sweep::new(run);
    for (bucket, time) in timeline.times.iter().enumerate() {
        while sweep.next_time().is_some_and(|next| next <= *time) {
            sweep.step(|allocation, begins| {
                let bytes = bytes(run, memory, allocation);
                let live = &mut live[of(allocation)];
                *live = match begins {
                    true => live.wrapping_add(bytes),
                    false => live.wrapping_sub(bytes),
                };
            });
        }
        for (series, live) in timeline.series.iter_mut().zip(&live) {
            series.bytes[bucket] = *live;
        }
    }
    // The sum of groups without memory is not a group.
    timeline.series.retain(|series| series.groups > 0);
}
