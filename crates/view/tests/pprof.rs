//! Profiles of pprof, decoded by another library than the one that encodes them, with the field numbers of pprof's `profile.proto`.

use std::collections::BTreeMap;
use std::io::Read;

use crate::support::{DEVICE, PINNED, STREAM, allocated, at, freed, run};
use cuguard_recording::What;
use cuguard_view::{At, Frames, Run, moment, pprof};
use protobuf::CodedInputStream;

/// The fields of one message: numbers, and messages or texts as bytes. Packed numbers are decoded by [`Message::numbers`].
#[derive(Default)]
struct Message {
    numbers: BTreeMap<u32, Vec<u64>>,
    bytes: BTreeMap<u32, Vec<Vec<u8>>>,
}

impl Message {
    fn decode(bytes: &[u8]) -> Self {
        let mut message = Self::default();
        let mut from = CodedInputStream::from_bytes(bytes);
        while let Some(tag) = from.read_raw_tag_or_eof().expect("a tag") {
            let (field, wire) = (tag >> 3, tag & 7);
            match wire {
                0 => {
                    let number = from.read_uint64().expect("a number");
                    message.numbers.entry(field).or_default().push(number);
                }
                2 => {
                    let bytes = from.read_bytes().expect("bytes");
                    message.bytes.entry(field).or_default().push(bytes);
                }
                other => panic!("field {field} has the wire type {other}"),
            }
        }
        message
    }

    fn number(&self, field: u32) -> u64 {
        match self.numbers(field)[..] {
            [] => 0,
            [number] => number,
            ref many => panic!("field {field} has {many:?}"),
        }
    }

    /// All numbers of a repeated field, packed or not.
    fn numbers(&self, field: u32) -> Vec<u64> {
        let mut numbers = self.numbers.get(&field).cloned().unwrap_or_default();
        for packed in self.bytes.get(&field).into_iter().flatten() {
            let mut from = CodedInputStream::from_bytes(packed);
            while !from.eof().expect("the end can be told") {
                numbers.push(from.read_uint64().expect("a number"));
            }
        }
        numbers
    }

    fn messages(&self, field: u32) -> Vec<Self> {
        let bytes = self.bytes.get(&field).into_iter().flatten();
        bytes.map(|bytes| Self::decode(bytes)).collect()
    }
}

/// A sample in words.
#[derive(Debug, PartialEq)]
struct Sample {
    /// Function, file and line, innermost first.
    stack: Vec<(String, String, u64)>,
    values: Vec<u64>,
    labels: Vec<(String, String)>,
}

struct Profile {
    types: Vec<(String, String)>,
    default_type: String,
    samples: Vec<Sample>,
    libraries: Vec<String>,
    comments: Vec<String>,
}

/// Decodes a profile. Every number in it must refer to something.
fn decode(profile: &[u8]) -> Profile {
    let mut bytes = Vec::new();
    let mut from = flate2::read::GzDecoder::new(profile);
    from.read_to_end(&mut bytes)
        .expect("it is compressed with gzip");
    let profile = Message::decode(&bytes);
    let strings: Vec<String> = profile.bytes[&6]
        .iter()
        .map(|text| String::from_utf8(text.clone()).expect("a text"))
        .collect();
    assert_eq!(strings[0], "");
    let text = |index: u64| strings[index as usize].clone();
    let by_id = |field: u32| -> BTreeMap<u64, Message> {
        let messages = profile.messages(field);
        let count = messages.len();
        let by_id: BTreeMap<_, _> = messages.into_iter().map(|m| (m.number(1), m)).collect();
        assert_eq!(by_id.len(), count, "each has an id of its own");
        assert!(!by_id.contains_key(&0));
        by_id
    };
    let (mappings, locations, functions) = (by_id(3), by_id(4), by_id(5));
    let frame = |id: u64| {
        let location = &locations[&id];
        let mapping = location.number(2);
        assert!(mapping == 0 || mappings.contains_key(&mapping));
        let [line] = &location.messages(4)[..] else {
            panic!("one line")
        };
        let function = &functions[&line.number(1)];
        (
            text(function.number(2)),
            text(function.number(4)),
            line.number(2),
        )
    };
    let samples = profile.messages(2).into_iter().map(|sample| Sample {
        stack: sample.numbers(1).into_iter().map(frame).collect(),
        values: sample.numbers(2),
        labels: sample
            .messages(3)
            .iter()
            .map(|label| (text(label.number(1)), text(label.number(2))))
            .collect(),
    });
    Profile {
        types: profile
            .messages(1)
            .iter()
            .map(|one| (text(one.number(1)), text(one.number(2))))
            .collect(),
        default_type: text(profile.number(14)),
        samples: samples.collect(),
        libraries: mappings.values().map(|one| text(one.number(5))).collect(),
        comments: profile.numbers(13).into_iter().map(text).collect(),
    }
}

fn of(run: &Run, when: At, frames: Frames) -> Profile {
    let mut profile = Vec::new();
    let moment = moment(run, when).expect("there is such a moment");
    pprof(&[&moment], frames, &mut profile).expect("memory takes all");
    decode(&profile)
}

fn training() -> Run {
    run(vec![
        at(1, allocated(DEVICE, 0x1000, 100, 1)),
        at(2, allocated(DEVICE, 0x2000, 5_000_000_000, 2)),
        at(3, allocated(DEVICE, 0x3000, 7, 2)),
        at(4, allocated(PINNED, 0x4000, 40, 3)),
        at(5, allocated(STREAM, 0x5000, 0, 1)),
        at(6, freed(DEVICE, 0x3000)),
        at(9, freed(DEVICE, 0x2000)),
    ])
}

#[test]
fn samples_have_the_amounts_of_the_moment() {
    let run = training();
    let profile = of(&run, At::Time(7), Frames::All);
    let types = [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ];
    assert_eq!(
        profile.types,
        types.map(|(a, b)| (a.to_owned(), b.to_owned()))
    );
    assert_eq!(profile.default_type, "inuse_space");
    let find = |function: &str, kind: &str| {
        let is_it = |sample: &&Sample| {
            let has = |(name, ..): &(String, String, u64)| name == function;
            let label = ("kind".to_owned(), kind.to_owned());
            sample.stack.iter().any(has) && sample.labels.contains(&label)
        };
        let mut found = profile.samples.iter().filter(is_it);
        let one = found.next().unwrap_or_else(|| panic!("{function} {kind}"));
        assert!(found.next().is_none());
        one
    };
    let step = find("app::step", "device");
    assert_eq!(step.values, [2, 5_000_000_007, 1, 5_000_000_000]);
    assert_eq!(find("app::load", "device").values, [1, 100, 1, 100]);
    assert_eq!(find("app::load", "stream").values, [1, 0, 1, 0]);
    assert_eq!(find("src/line.rs:7", "pinned").values, [1, 40, 1, 40]);
    let frame = |function: &str, file: &str, line| (function.to_owned(), file.to_owned(), line);
    assert_eq!(
        step.stack.iter().rev().take(2).collect::<Vec<_>>(),
        [
            &frame("app::main", "src/main.rs", 33),
            &frame("app::step", "src/main.rs", 22)
        ]
    );
    assert!(
        profile.libraries.contains(&"app".to_owned()),
        "{:?}",
        profile.libraries
    );
    assert_eq!(profile.comments.len(), 1);
    assert!(
        profile.comments[0].starts_with("app --train: alive "),
        "{:?}",
        profile.comments
    );
}

#[test]
fn all_bytes_of_the_moment_are_in_samples() {
    let run = training();
    for when in [At::Time(1), At::Time(7), At::Peak, At::Exit] {
        let moment = moment(&run, when).expect("there is such a moment");
        for frames in [Frames::All, Frames::Program] {
            let profile = of(&run, when, frames);
            let sum = |index: usize| -> u64 {
                let samples = profile.samples.iter();
                samples.map(|sample| sample.values[index]).sum()
            };
            assert_eq!((sum(2), sum(3)), (moment.total.count, moment.total.bytes));
        }
    }
}

/// What ended with its context is in the profile of the exit, as it is in the text.
#[test]
fn what_was_not_freed_before_its_context_ended_is_in_use_at_exit() {
    let run = run(vec![
        at(1, allocated(DEVICE, 0x1000, 100, 1)),
        at(2, allocated(DEVICE, 0x2000, 40, 2)),
        at(3, freed(DEVICE, 0x2000)),
        at(4, What::ContextEnded { context: 1 }),
    ]);
    let values = |when| {
        let samples = of(&run, when, Frames::Program).samples;
        samples.into_iter().map(|sample| sample.values)
    };
    assert!(values(At::Exit).eq([vec![1, 100, 1, 100], vec![1, 40, 0, 0]]));
    // It is no longer alive at the last moment.
    assert!(values(At::Percent(100.0)).eq([vec![1, 100, 0, 0], vec![1, 40, 0, 0]]));
}

#[test]
fn a_run_without_allocations_is_a_valid_profile() {
    let profile = of(&Run::default(), At::Exit, Frames::All);
    assert!(profile.samples.is_empty());
    assert_eq!(profile.types.len(), 4);
}
