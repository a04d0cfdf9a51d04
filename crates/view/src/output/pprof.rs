//! Moments as a profile of pprof.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::pprof_messages::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};
use crate::error::ViewError;
use crate::look::{Frames, UNKNOWN};
use crate::moment::Moment;
use crate::run::{Allocation, Frame, Run};
use cuguard_registry::Amount;

/// The types of a sample's values, named and in the order of heap profiles of Go: pprof knows these names, and speedscope
/// shows the last.
const TYPES: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

/// Writes a profile, compressed with gzip, as pprof and speedscope open it: what was alive, and what was ever allocated
/// until then, by call site. Samples have the labels `kind`, `label` and, with more than one moment, `run`.
///
/// ```
/// use cuguard_view::{At, Frames, Run, moment, pprof};
///
/// let run = Run::default();
/// let mut profile = Vec::new();
/// pprof(&[&moment(&run, At::Exit)?], Frames::All, &mut profile)?;
/// assert_eq!(profile[..2], [0x1f, 0x8b]);
/// # Ok::<(), cuguard_view::ViewError>(())
/// ```
///
/// # Errors
/// It cannot be written.
pub fn pprof(
    moments: &[&Moment<'_>],
    frames: Frames,
    out: &mut dyn Write,
) -> Result<(), ViewError> {
    let bytes = profile(moments, frames).encode_to_vec();
    let mut encoder = GzEncoder::new(out, Compression::default());
    let written = encoder
        .write_all(&bytes)
        .and_then(|()| encoder.try_finish());
    written.map_err(|error| ViewError::Write {
        what: "pprof profile",
        error,
    })
}

fn profile(moments: &[&Moment<'_>], frames: Frames) -> Profile {
    let mut builder = Builder::default();
    // The first string is empty by definition.
    builder.string("");
    for (name, unit) in TYPES {
        let sample_type = ValueType {
            r#type: builder.string(name),
            unit: builder.string(unit),
        };
        builder.profile.sample_type.push(sample_type);
    }
    builder.profile.default_sample_type = builder.string("inuse_space");
    for moment in moments {
        builder.add(moment, frames, moments.len() > 1);
        let comment = format!("{}: alive {}", moment.run.command, moment.words());
        let comment = builder.string(&comment);
        builder.profile.comment.push(comment);
        for caveat in moment.run.caveats() {
            let caveat = builder.string(&caveat);
            builder.profile.comment.push(caveat);
        }
    }
    if let Some(moment) = moments.first() {
        builder.profile.time_nanos = signed(moment.run.started.saturating_add(moment.time));
        builder.profile.duration_nanos = signed(moment.time);
    }
    let mut profile = builder.profile;
    profile.string_table = builder.strings.into_sorted();
    profile
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Numbers from 0 in the order of first use.
#[derive(Default)]
struct Table<K> {
    known: HashMap<K, u64>,
}

impl<K: std::hash::Hash + Eq + Clone> Table<K> {
    /// The number, and whether it is new.
    fn number(&mut self, key: &K) -> (u64, bool) {
        if let Some(number) = self.known.get(key) {
            return (*number, false);
        }
        let number = self.known.len() as u64;
        self.known.insert(key.clone(), number);
        (number, true)
    }

    fn into_sorted(self) -> Vec<K> {
        let mut sorted: Vec<_> = self.known.into_iter().collect();
        sorted.sort_by_key(|(_, number)| *number);
        sorted.into_iter().map(|(key, _)| key).collect()
    }
}

#[derive(Default)]
struct Builder {
    profile: Profile,
    strings: Table<String>,
    frames: Table<Frame>,
    /// By name and file.
    functions: Table<(String, String)>,
    libraries: Table<String>,
}

impl Builder {
    fn string(&mut self, text: &str) -> i64 {
        signed(self.strings.number(&text.to_owned()).0)
    }

    fn add(&mut self, moment: &Moment<'_>, frames: Frames, with_run: bool) {
        let run = moment.run;
        // By call site, kind and label: what is alive, and what was allocated.
        let mut sums: BTreeMap<(u32, u8, u32), (Amount, Amount)> = BTreeMap::new();
        let key = |a: &Allocation| (a.site, a.kind, a.label);
        let begun = |allocation: &&Allocation| allocation.start <= moment.time;
        for allocation in run.allocations.iter().take_while(begun) {
            sums.entry(key(allocation)).or_default().1 += run.amount(allocation);
        }
        // The moment decides what is alive: at exit also what ended with its context.
        for allocation in moment.allocations() {
            sums.entry(key(allocation)).or_default().0 += run.amount(allocation);
        }
        let mut stacks: HashMap<u32, Vec<u64>> = HashMap::new();
        for ((site, kind, label), (alive, allocated)) in sums {
            let stack = stacks.entry(site);
            let stack = stack.or_insert_with(|| self.stack(run, site, frames));
            let location_id = stack.clone();
            let values = [allocated.count, allocated.bytes, alive.count, alive.bytes];
            let kind = run
                .kinds
                .get(usize::from(kind))
                .map_or("", |kind| &kind.name);
            let label = run.names.get(label as usize).map_or("", String::as_str);
            let title = if with_run { run.title() } else { String::new() };
            let labels = [("kind", kind), ("label", label), ("run", &title)];
            let labels = labels.into_iter().filter(|(_, text)| !text.is_empty());
            let label = labels.map(|(key, text)| Label {
                key: self.string(key),
                str: self.string(text),
            });
            let label = label.collect();
            self.profile.sample.push(Sample {
                location_id,
                value: values.map(signed).to_vec(),
                label,
            });
        }
    }

    /// The locations of a stack trace, innermost first.
    fn stack(&mut self, run: &Run, site: u32, frames: Frames) -> Vec<u64> {
        let shown = run.sites.get(site as usize).map(|site| site.shown(frames));
        let ids: Vec<u64> = shown
            .into_iter()
            .flatten()
            .map(|f| self.location(f))
            .collect();
        if !ids.is_empty() {
            return ids;
        }
        let unknown = Frame {
            function: UNKNOWN.to_owned(),
            ..Frame::default()
        };
        vec![self.location(&unknown)]
    }

    fn location(&mut self, frame: &Frame) -> u64 {
        let (number, is_new) = self.frames.number(frame);
        let id = number + 1;
        if is_new {
            let line = Line {
                function_id: self.function(frame),
                line: i64::from(frame.line),
            };
            let mapping_id = self.mapping(&frame.library);
            self.profile.location.push(Location {
                id,
                mapping_id,
                line: vec![line],
            });
        }
        id
    }

    fn function(&mut self, frame: &Frame) -> u64 {
        let key = (frame.function.clone(), frame.file.clone());
        let (number, is_new) = self.functions.number(&key);
        let id = number + 1;
        if is_new {
            let name = self.string(&frame.function);
            let filename = self.string(&frame.file);
            self.profile.function.push(Function {
                id,
                name,
                system_name: name,
                filename,
            });
        }
        id
    }

    /// 0 for an unknown library.
    fn mapping(&mut self, library: &str) -> u64 {
        if library.is_empty() {
            return 0;
        }
        let (number, is_new) = self.libraries.number(&library.to_owned());
        let id = number + 1;
        if is_new {
            let filename = self.string(library);
            self.profile.mapping.push(Mapping {
                id,
                filename,
                has_functions: true,
                has_filenames: true,
                has_line_numbers: true,
                has_inline_frames: true,
            });
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use prost::Message;

    use super::{Frames, Profile, pprof};
    use crate::moment::{At, moment};
    use crate::run::{Allocation, CallSite, FOREVER, Frame, RecordedKind, Run};

    fn run() -> Run {
        let frame = |function: &str, line| Frame {
            function: function.to_owned(),
            file: "main.rs".to_owned(),
            line,
            library: "app".to_owned(),
            in_app: true,
        };
        let site = |line| CallSite {
            frames: vec![frame("load", line), frame("main", 9)],
            ..CallSite::default()
        };
        let block = |start, end, bytes, site, label| Allocation {
            start,
            end,
            bytes,
            site,
            label,
            ..Allocation::default()
        };
        Run {
            command: "app".to_owned(),
            started: 1_000,
            kinds: vec![RecordedKind {
                name: "device".to_owned(),
                on_device: true,
                is_memory: true,
            }],
            names: vec![String::new(), "weights".to_owned()],
            sites: vec![CallSite::default(), site(1), site(2)],
            allocations: vec![
                block(1, 3, 10, 1, 0),
                block(2, FOREVER, 20, 1, 0),
                block(2, FOREVER, 40, 2, 1),
                block(3, FOREVER, 80, 0, 0),
            ],
            end: 10,
            ..Run::default()
        }
    }

    fn decoded(bytes: &[u8]) -> Profile {
        let mut plain = Vec::new();
        let read = GzDecoder::new(bytes).read_to_end(&mut plain);
        read.expect("it is compressed with gzip");
        Profile::decode(plain.as_slice()).expect("it is a profile")
    }

    /// Each sample: its functions with lines, innermost first, its values and its labels.
    fn samples(profile: &Profile) -> Vec<(String, Vec<i64>, String)> {
        let text = |index: i64| profile.string_table[index as usize].as_str();
        let samples = profile.sample.iter().map(|sample| {
            let frames = sample.location_id.iter().map(|id| {
                let location = &profile.location[*id as usize - 1];
                assert_eq!(location.id, *id);
                let line = location.line[0];
                let function = &profile.function[line.function_id as usize - 1];
                format!("{}:{}", text(function.name), line.line)
            });
            let labels = sample.label.iter();
            let labels = labels.map(|label| format!("{}={}", text(label.key), text(label.str)));
            (
                frames.collect::<Vec<_>>().join(" "),
                sample.value.clone(),
                labels.collect::<Vec<_>>().join(" "),
            )
        });
        samples.collect()
    }

    #[test]
    fn a_profile_has_what_was_alive_and_what_was_allocated() {
        let run = run();
        let at_exit = moment(&run, At::Exit).expect("every run has an end");
        let mut bytes = Vec::new();
        pprof(&[&at_exit], Frames::Program, &mut bytes).expect("memory can be written to");
        let profile = decoded(&bytes);
        let row = |stack: &str, values: [i64; 4], labels: &str| {
            (stack.to_owned(), values.to_vec(), labels.to_owned())
        };
        let expected = [
            row("unknown call site:0", [1, 80, 1, 80], "kind=device"),
            row("load:1 main:9", [2, 30, 1, 20], "kind=device"),
            row("load:2 main:9", [1, 40, 1, 40], "kind=device label=weights"),
        ];
        assert_eq!(samples(&profile), expected);
        let text = |index: i64| profile.string_table[index as usize].as_str();
        let types: Vec<_> = profile
            .sample_type
            .iter()
            .map(|t| (text(t.r#type), text(t.unit)))
            .collect();
        assert_eq!(types, super::TYPES);
        assert_eq!(text(profile.default_sample_type), "inuse_space");
        assert_eq!(profile.string_table[0], "");
        assert_eq!(profile.time_nanos, 1_010);
        assert_eq!(profile.mapping.len(), 1);
        assert_eq!(text(profile.mapping[0].filename), "app");
    }

    #[test]
    fn what_is_allocated_later_is_not_in_it_and_runs_are_told_apart() {
        let run = run();
        let early = moment(&run, At::Time(1)).expect("it is in the run");
        let mut bytes = Vec::new();
        pprof(&[&early, &early], Frames::Program, &mut bytes).expect("memory can be written to");
        let row = (
            "load:1 main:9".to_owned(),
            vec![1, 10, 1, 10],
            "kind=device run=process 0".to_owned(),
        );
        assert_eq!(samples(&decoded(&bytes)), [row.clone(), row]);
    }
}
