//! Builds the run of one process from its reports.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::value::{hexadecimal, items, nanoseconds, number, text};
use crate::resolver::file_name;
use crate::run::{Allocation, CallSite, FOREVER, Fate, Frame, Origin, RecordedKind, Run};
use crate::symbols;
use cuguard_report::{FrameClass, audit};

/// A group of more resources is shown as this many, with the bytes of all: a report has only their sum.
const MOST_OF_GROUP: u64 = 100_000;

/// All groups of a file together are shown as about so many: a line of a hundred bytes can claim any number of resources.
pub(super) const MOST_OF_FILE: u64 = 2_000_000;

pub(super) struct Builder<'b> {
    run: Run,
    /// How many more allocations the file may have.
    budget: &'b mut u64,
    /// The problems, for a file with many.
    said: HashSet<String>,
    /// Groups that are shown as fewer resources: how many, and the first one's resources and those shown.
    shortened: u64,
    first_shortened: (u64, u64),
    kinds: HashMap<String, u8>,
    names: HashMap<String, u32>,
    sites: HashMap<CallSite, u32>,
}

/// What a report says about the resources of one group.
struct Group<'a> {
    value: &'a Value,
    site: u32,
    context: u32,
    /// When the report was made.
    now: u64,
}

impl<'b> Builder<'b> {
    pub(super) fn new(source: &str, budget: &'b mut u64) -> Self {
        Self {
            budget,
            said: HashSet::new(),
            shortened: 0,
            first_shortened: (0, 0),
            run: Run {
                source: source.to_owned(),
                sites: vec![CallSite::default()],
                names: vec![String::new()],
                is_report: true,
                ..Run::default()
            },
            kinds: HashMap::new(),
            names: HashMap::from([(String::new(), 0)]),
            sites: HashMap::from([(CallSite::default(), 0)]),
        }
    }

    /// Adds a report of the crate: one context.
    pub(super) fn context(&mut self, report: &Value) {
        self.begin(report);
        self.run.origin = Origin::Context;
        let (now, context) = (nanoseconds(report, "seconds"), id(report));
        for member in ["leaks", "escaped"] {
            for group in items(report, member) {
                self.group_with_indirect(group, now, context);
            }
        }
        for failed in items(report, "failed_frees") {
            self.group_with_indirect(&failed["allocated"], now, context);
        }
        for member in ["unrecorded", "deferred"] {
            for value in items(report, member) {
                let site = 0;
                self.add(&Group {
                    value,
                    site,
                    context,
                    now,
                });
            }
        }
        let sample = u32::try_from(number(report, "sample")).unwrap_or(u32::MAX);
        self.run.sample = self.run.sample.max(sample);
        self.note_hidden(report, "leaks_not_shown");
    }

    /// Adds the report of a process under `cuguard run`.
    pub(super) fn audit(&mut self, report: &Value) {
        self.begin(report);
        self.run.command = text(report, "command").to_owned();
        let now = nanoseconds(report, "seconds");
        for value in items(report, "groups") {
            // Freed by the program, though late.
            if text(value, "fate") != "freed_late" {
                let site = self.site(value);
                self.add(&Group {
                    value,
                    site,
                    context: 0,
                    now,
                });
            }
        }
        let refused = number(report, "refused_count");
        if refused != 0 {
            self.problem(format!(
                "{refused} allocations failed for lack of memory; a report has no time of them, a recording has"
            ));
        }
        self.note_hidden(report, "groups_not_shown");
    }

    pub(super) fn finish(mut self) -> Run {
        let (count, shown) = self.first_shortened;
        match self.shortened {
            0 => {}
            1 => self.problem(format!(
                "a group of {count} resources is shown as {shown}, with the bytes of all"
            )),
            many => self.problem(format!(
                "{many} groups are shown as fewer resources, with the bytes of all: one of {count} resources as {shown}"
            )),
        }
        self.run
            .allocations
            .sort_by_key(|allocation| allocation.start);
        self.run
    }

    fn begin(&mut self, report: &Value) {
        let run = &mut self.run;
        run.pid = u32::try_from(number(report, "process")).unwrap_or_default();
        run.end = run.end.max(nanoseconds(report, "seconds"));
        let asked_for = ["requested", "left_behind", audit::DUMP].contains(&text(report, "reason"));
        run.exited |= !asked_for;
    }

    fn note_hidden(&mut self, report: &Value, member: &str) {
        let not_shown = number(report, member);
        if not_shown != 0 {
            self.problem(format!("{not_shown} groups are not in the report (max=N)"));
        }
        let suppressed = &report["suppressed"];
        let (count, bytes) = (number(suppressed, "count"), number(suppressed, "bytes"));
        if count != 0 {
            let bytes = cuguard_report::ByteSize(bytes);
            self.problem(format!(
                "suppressed resources are not in the report: {bytes} in {count}"
            ));
        }
    }

    fn problem(&mut self, line: String) {
        if self.said.insert(line.clone()) {
            self.run.problems.push(line);
        }
    }

    fn group_with_indirect(&mut self, value: &Value, now: u64, context: u32) {
        let site = self.site(value);
        self.add(&Group {
            value,
            site,
            context,
            now,
        });
        for indirect in items(value, "indirect") {
            self.group_with_indirect(indirect, now, context);
        }
    }

    /// One allocation for each resource of a group. Their sizes are not in the report, only the sum: equal shares, and the
    /// first has the remainder. They begin evenly between the oldest and the youngest.
    fn add(&mut self, group: &Group<'_>) {
        let value = group.value;
        let (count, bytes) = (number(value, "count"), number(value, "bytes"));
        let kind = self.kind(text(value, "kind"), bytes != 0);
        let thread = self.name(&list(items(value, "threads")));
        let label = self.name(text(value, "label"));
        let stream = match items(value, "streams") {
            [stream] => hexadecimal(stream),
            // Which of them belongs to which resource is not in the report.
            _ => 0,
        };
        let start = |member| group.now.saturating_sub(nanoseconds(value, member));
        let (oldest, youngest) = (start("oldest_seconds"), start("youngest_seconds"));
        // One at least: no bytes are left out.
        let shown = count.min(MOST_OF_GROUP).min((*self.budget).max(1));
        *self.budget = self.budget.saturating_sub(shown);
        if shown < count {
            if self.shortened == 0 {
                self.first_shortened = (count, shown);
            }
            self.shortened += 1;
        }
        let addresses = items(value, "addresses");
        // When the context ended is not in the report: for readers, after all that it lists was there.
        let leaked = text(value, "fate") == "destroyed_with_context";
        let ended = group.now.saturating_add(1);
        if leaked {
            self.run.end = self.run.end.max(ended);
        }
        for index in 0..shown {
            let share = bytes / shown;
            let rest = if index == 0 { bytes % shown } else { 0 };
            let between = u128::from(youngest.saturating_sub(oldest)) * u128::from(index)
                / u128::from(shown.max(2) - 1);
            let address = addresses.get(index as usize);
            self.run.allocations.push(Allocation {
                start: oldest + between as u64,
                end: if leaked { ended } else { FOREVER },
                address: address.map_or(0, hexadecimal),
                bytes: share + rest,
                stream,
                site: group.site,
                thread,
                label,
                context: group.context,
                kind,
                leaked,
                fate: match text(value, "fate") {
                    "lost" => Fate::Lost,
                    "reachable" => Fate::Reachable,
                    _ => Fate::Unknown,
                },
            });
        }
    }

    fn kind(&mut self, name: &str, has_bytes: bool) -> u8 {
        if let Some(known) = self.kinds.get(name) {
            return *known;
        }
        let mut all = cuguard_registry::ResourceKind::ALL.iter();
        let known = all.find(|kind| kind.name() == name);
        let index = u8::try_from(self.run.kinds.len()).unwrap_or(u8::MAX);
        if index == u8::MAX {
            return 0;
        }
        self.run.kinds.push(RecordedKind {
            name: name.to_owned(),
            on_device: known.is_some_and(|kind| kind.is_device_memory()),
            // Of a newer version.
            is_memory: known.map_or(has_bytes, |kind| kind.is_memory()),
        });
        self.kinds.insert(name.to_owned(), index);
        index
    }

    fn name(&mut self, name: &str) -> u32 {
        if let Some(known) = self.names.get(name) {
            return *known;
        }
        let index = self.run.names.len() as u32;
        self.run.names.push(name.to_owned());
        self.names.insert(name.to_owned(), index);
        index
    }

    fn site(&mut self, group: &Value) -> u32 {
        let frames = items(group, "stack").iter().map(frame).collect();
        let site = &group["site"];
        let line = site.is_object().then(|| cuguard_recording::Site {
            file: text(site, "file").to_owned(),
            line: small(site, "line"),
            column: small(site, "column"),
        });
        let site = symbols::shown(frames, line.as_ref(), text(group, "type"));
        if let Some(known) = self.sites.get(&site) {
            return *known;
        }
        let index = self.run.sites.len() as u32;
        self.run.sites.push(site.clone());
        self.sites.insert(site, index);
        index
    }
}

fn id(report: &Value) -> u32 {
    u32::try_from(number(&report["context"], "id")).unwrap_or_default()
}

fn small(value: &Value, member: &str) -> u32 {
    u32::try_from(number(value, member)).unwrap_or_default()
}

fn list(names: &[Value]) -> String {
    let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
    names.join(", ")
}

fn frame(value: &Value) -> Frame {
    let module = text(value, "module");
    let library = file_name(module);
    let function = match text(value, "function") {
        "" if !module.is_empty() => format!("{library}+{}", text(value, "offset")),
        "" => text(value, "address").to_owned(),
        function => function.to_owned(),
    };
    let class = FrameClass::from_name(text(value, "class"));
    let is_user = class == Some(FrameClass::User);
    Frame {
        function,
        file: text(value, "file").to_owned(),
        line: small(value, "line"),
        library: library.to_owned(),
        in_app: is_user || value["in_app"] == true,
    }
}
