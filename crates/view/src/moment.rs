//! What was alive at a moment.

use std::fmt;
use std::str::FromStr;

use crate::error::ViewError;
use crate::run::{Allocation, Mark, MarkKind, Run};
use crate::sweep::Sweep;
use crate::words;
use cuguard_registry::Amount;

/// A moment of a run.
///
/// ```
/// use cuguard_view::At;
///
/// assert_eq!("peak".parse::<At>()?, At::Peak);
/// assert_eq!("oom:2".parse::<At>()?, At::Oom(Some(2)));
/// assert_eq!("800ms".parse::<At>()?, At::Time(800_000_000));
/// assert_eq!("50%".parse::<At>()?, At::Percent(50.0));
/// let error = "noon".parse::<At>().unwrap_err().to_string();
/// assert!(error.starts_with("\"noon\" is not a moment; accepted are peak, exit, oom"));
/// # Ok::<(), cuguard_view::ViewError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum At {
    /// When device memory was at its peak; that of all memory in a run without device memory. Of a leak report, whose peak is not
    /// known, what it lists: as [`Exit`](Self::Exit).
    #[default]
    Peak,
    /// When the process exited, or the last that is known of it: what was not freed. That is what was alive, and what had
    /// ended with its context without a free, see [`Allocation::leaked`].
    Exit,
    /// An out-of-memory error, counted from 1; the last without a number.
    Oom(Option<usize>),
    /// Nanoseconds since the [origin](Run::origin): the start of the program.
    Time(u64),
    /// A share of the recording, from 0 to 100.
    Percent(f64),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peak => f.write_str("peak"),
            Self::Exit => f.write_str("exit"),
            Self::Oom(None) => f.write_str("oom"),
            Self::Oom(Some(number)) => write!(f, "oom:{number}"),
            Self::Time(time) => write!(f, "{}s", *time as f64 / 1e9),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl FromStr for At {
    type Err = ViewError;

    fn from_str(word: &str) -> Result<Self, ViewError> {
        let known = match word {
            "peak" => Some(Self::Peak),
            "exit" => Some(Self::Exit),
            "oom" => Some(Self::Oom(None)),
            _ => None,
        };
        let oom = || {
            let number = word.strip_prefix("oom:")?.parse().ok();
            number
                .filter(|number| *number > 0)
                .map(|n| Self::Oom(Some(n)))
        };
        let percent = || {
            let percent = number(word.strip_suffix('%')?)?;
            (percent <= 100.0).then_some(Self::Percent(percent))
        };
        let found = known.or_else(oom).or_else(percent);
        let found = found.or_else(|| nanoseconds(word).map(Self::Time));
        found.ok_or_else(|| ViewError::At {
            word: word.to_owned(),
        })
    }
}

/// A decimal number that is not negative. `f64` itself would accept `inf` and `1e9`.
fn number(word: &str) -> Option<f64> {
    let is_plain = |character: u8| character.is_ascii_digit() || character == b'.';
    word.bytes().all(is_plain).then(|| word.parse().ok())?
}

fn nanoseconds(word: &str) -> Option<u64> {
    // The longer endings first.
    let units = [
        ("min", 60e9),
        ("ms", 1e6),
        ("us", 1e3),
        ("µs", 1e3),
        ("ns", 1.0),
        ("s", 1e9),
    ];
    let (digits, unit) = units
        .into_iter()
        .find_map(|(name, unit)| Some((word.strip_suffix(name)?, unit)))?;
    Some((number(digits.trim_end())? * unit).round() as u64)
}

/// What was alive at a moment.
#[derive(Clone, Debug)]
pub struct Moment<'r> {
    /// The run.
    pub run: &'r Run,
    /// Which moment.
    pub at: At,
    /// Nanoseconds since the [origin](Run::origin).
    pub time: u64,
    /// What was alive, and at exit what was not freed: indices of [`Run::allocations`], in order.
    pub alive: Vec<u32>,
    /// All memory and handles.
    pub total: Amount,
    /// The bytes of device memory alone.
    pub device_bytes: u64,
}

impl<'r> Moment<'r> {
    /// The allocations that were alive, in order of their begin.
    pub fn allocations(&self) -> impl Iterator<Item = &'r Allocation> {
        let allocations = &self.run.allocations;
        self.alive.iter().map(|index| &allocations[*index as usize])
    }

    /// What of it ended with its context, without a free. Nothing but at exit, and in a leak report.
    pub(crate) fn ended_unfreed(&self) -> Amount {
        let ended = self.allocations().filter(|one| one.end <= self.time);
        ended.map(|one| self.run.amount(one)).sum()
    }

    /// The out-of-memory error that this is the moment of.
    pub(crate) fn out_of_memory(&self) -> Option<&'r Mark> {
        match self.at {
            At::Oom(number) => out_of_memory(self.run, number),
            _ => None,
        }
    }

    /// In words: `at the peak, after 8.21 s`.
    #[must_use]
    pub fn words(&self) -> String {
        let after = words::duration(self.time);
        match self.at {
            At::Peak if self.run.is_report => format!("in the leak report, after {after}"),
            At::Peak => format!("at the peak, after {after}"),
            At::Exit if self.run.exited => format!("at exit, after {after}"),
            At::Exit => {
                format!("at the end of the recording, after {after} (no exit was recorded)")
            }
            At::Oom(Some(number)) => format!("at out-of-memory error {number}, after {after}"),
            At::Oom(None) => format!("at the last out-of-memory error, after {after}"),
            At::Time(_) | At::Percent(_) => format!("after {after}"),
        }
    }
}

/// What was alive at a moment.
///
/// ```
/// use cuguard_view::{Allocation, At, FOREVER, RecordedKind, Run, moment};
///
/// let device = RecordedKind { name: "device".to_owned(), on_device: true, is_memory: true };
/// let block = Allocation { start: 10, end: 20, bytes: 512, ..Allocation::default() };
/// let run = Run { kinds: vec![device], allocations: vec![block], end: 30, ..Run::default() };
/// assert_eq!(moment(&run, At::Peak)?.device_bytes, 512);
/// assert_eq!(moment(&run, At::Exit)?.device_bytes, 0);
/// assert!(moment(&run, At::Oom(None)).is_err());
/// # Ok::<(), cuguard_view::ViewError>(())
/// ```
///
/// # Errors
/// [`ViewError::NoMoment`]: there was no such out-of-memory error, or a leak report does not have them, or the time is behind the end.
pub fn moment(run: &Run, at: At) -> Result<Moment<'_>, ViewError> {
    let missing = |why: String| ViewError::NoMoment {
        source_name: run.source.clone(),
        why,
    };
    let time = match at {
        At::Peak if run.is_report => run.end,
        At::Peak => peak(run).time,
        At::Exit => run.end,
        At::Time(time) if time > run.end => {
            let (time, end) = (words::duration(time), words::duration(run.end));
            return Err(missing(format!(
                "there is not a moment after {time}: the run ends after {end}"
            )));
        }
        At::Time(time) => time,
        At::Percent(percent) => {
            let length = run.end.saturating_sub(run.begin);
            run.begin + (length as f64 * percent / 100.0).round() as u64
        }
        At::Oom(number) => {
            let found = out_of_memory(run, number).map(|mark| mark.time);
            found.ok_or_else(|| match out_of_memory_errors(run).count() {
                0 if run.is_report => {
                    missing("a leak report does not have out-of-memory errors".to_owned())
                }
                0 => missing("there was no out-of-memory error".to_owned()),
                1 => missing("there was 1 out-of-memory error alone".to_owned()),
                many => missing(format!("there were {many} out-of-memory errors alone")),
            })?
        }
    };
    Ok(at_time(run, at, time))
}

fn out_of_memory_errors(run: &Run) -> impl DoubleEndedIterator<Item = &Mark> {
    let is_error = |mark: &&Mark| matches!(mark.kind, MarkKind::OutOfMemory { .. });
    run.marks.iter().filter(is_error)
}

/// The out-of-memory error with this number, or the last.
fn out_of_memory(run: &Run, number: Option<usize>) -> Option<&Mark> {
    let mut errors = out_of_memory_errors(run);
    match number {
        None => errors.next_back(),
        Some(number) => errors.nth(number.checked_sub(1)?),
    }
}

pub(crate) fn at_time(run: &Run, at: At, time: u64) -> Moment<'_> {
    let begun = run.allocations.partition_point(|a| a.start <= time);
    let has_unfreed = at == At::Exit || (at == At::Peak && run.is_report);
    let alive = |index: &u32| {
        let allocation = &run.allocations[*index as usize];
        allocation.end > time || (has_unfreed && allocation.leaked)
    };
    let begun = u32::try_from(begun).unwrap_or(u32::MAX);
    let alive: Vec<u32> = (0..begun).filter(alive).collect();
    let (mut total, mut device_bytes) = (Amount::default(), 0_u64);
    for index in &alive {
        let allocation = &run.allocations[*index as usize];
        total += run.amount(allocation);
        device_bytes = device_bytes.saturating_add(run.device_bytes(allocation));
    }
    Moment {
        run,
        at,
        time,
        alive,
        total,
        device_bytes,
    }
}

impl Run {
    /// One allocation as an amount.
    pub(crate) fn amount(&self, allocation: &Allocation) -> Amount {
        let kind = self.kinds.get(usize::from(allocation.kind));
        let is_memory = kind.is_some_and(|kind| kind.is_memory);
        Amount {
            count: 1,
            bytes: if is_memory { allocation.bytes } else { 0 },
        }
    }

    /// The device memory of an allocation.
    pub(crate) fn device_bytes(&self, allocation: &Allocation) -> u64 {
        let kind = self.kinds.get(usize::from(allocation.kind));
        match kind.is_some_and(|kind| kind.on_device) {
            true => allocation.bytes,
            false => 0,
        }
    }
}

/// The highest amount of memory, and when it was reached first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// Nanoseconds since the [origin](Run::origin).
    pub time: u64,
    /// Bytes of device memory at that time.
    pub device_bytes: u64,
    /// Bytes of all memory at that time.
    pub bytes: u64,
}

/// The peak of device memory; of all memory in a run without device memory.
///
/// ```
/// # use cuguard_view::{Allocation, FOREVER, RecordedKind, Run};
/// let device = RecordedKind { name: "device".to_owned(), on_device: true, is_memory: true };
/// let block = Allocation { start: 10, end: 20, bytes: 512, ..Allocation::default() };
/// let run = Run { kinds: vec![device], allocations: vec![block], end: 30, ..Run::default() };
/// assert_eq!(cuguard_view::peak(&run).time, 10);
/// ```
#[must_use]
pub fn peak(run: &Run) -> Peak {
    let mut sweep = Sweep::new(run);
    // Sums of a broken recording may overflow; they are equal again when what was added is subtracted.
    let mut now = Peak::default();
    let (mut of_device, mut of_all) = (Peak::default(), Peak::default());
    while let Some(time) = sweep.step(|allocation, begins| {
        let (device, all) = (run.device_bytes(allocation), run.amount(allocation).bytes);
        match begins {
            true => {
                now.device_bytes = now.device_bytes.wrapping_add(device);
                now.bytes = now.bytes.wrapping_add(all);
            }
            false => {
                now.device_bytes = now.device_bytes.wrapping_sub(device);
                now.bytes = now.bytes.wrapping_sub(all);
            }
        }
    }) {
        now.time = time;
        if now.device_bytes > of_device.device_bytes {
            of_device = now;
        }
        if now.bytes > of_all.bytes {
            of_all = now;
        }
    }
    if of_device.device_bytes > 0 {
        of_device
    } else {
        of_all
    }
}
