//! Which call sites of two runs are the same.
//!
//! A call site is identified by the functions and file names of its stack trace. Where several differ in line numbers
//! alone, the lines decide if one run has no lines but the other's. Else the function was edited, or other calls were alive:
//!
//! - Lines in front of an edit stay, and those behind it move by one distance: these are matched in their order.
//! - Without such a distance, equal lines are one call site. Of the rest, equally many are matched in their order, and others
//!   are summed up.

use std::collections::{BTreeMap, BTreeSet};

use super::change::{Change, Match};
use crate::look::Frames;
use crate::moment::Moment;
use crate::resolver::file_name;
use crate::run::{Allocation, CallSite, Frame, Run};
use cuguard_registry::Amount;

/// What a call site is in every build: type, functions and names of files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    type_name: String,
    frames: Vec<(String, String)>,
}

/// A call site of a run, and what it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'r> {
    pub(crate) site: &'r CallSite,
    pub(crate) amount: Amount,
}

/// By the lines of the frames, innermost first.
type ByLines<'r> = BTreeMap<Vec<u32>, Place<'r>>;

/// By identity, then by lines.
pub(crate) type Places<'r> = BTreeMap<Identity, ByLines<'r>>;

/// The call site of a run without call sites.
static UNKNOWN: CallSite = CallSite {
    type_name: String::new(),
    frames: Vec::new(),
};

/// What was alive, by identity and lines of its call site. `measure` says what of an allocation counts.
pub(crate) fn by_identity<'r>(
    moment: &Moment<'r>,
    measure: impl Fn(&Run, &Allocation) -> Amount,
) -> Places<'r> {
    let run: &'r Run = moment.run;
    let mut sums: BTreeMap<u32, Amount> = BTreeMap::new();
    for allocation in moment.allocations() {
        *sums.entry(allocation.site).or_default() += measure(run, allocation);
    }
    let mut places = Places::new();
    for (site, amount) in sums {
        let site = run.sites.get(site as usize).or(run.sites.first());
        let site = site.unwrap_or(&UNKNOWN);
        let lines = site
            .shown(Frames::Program)
            .map(|frame| frame.line)
            .collect();
        let by_lines = places.entry(Identity::of(site)).or_default();
        let place = by_lines.entry(lines).or_insert(Place {
            site,
            amount: Amount::default(),
        });
        place.amount += amount;
    }
    places
}

impl Identity {
    pub(crate) fn of(site: &CallSite) -> Self {
        let frames = site.shown(Frames::Program);
        Self {
            type_name: site.type_name.clone(),
            frames: frames
                .map(|f| (stable_name(f), file_name(&f.file).to_owned()))
                .collect(),
        }
    }
}

/// The name of a function without what a compiler changes from build to build: hashes, and offsets in a module.
fn stable_name(frame: &Frame) -> String {
    let name = frame.function.as_str();
    // Without debug information the name is that of a line or of an offset.
    if !frame.file.is_empty() && name == format!("{}:{}", frame.file, frame.line) {
        return String::new();
    }
    if let Some((module, offset)) = name.rsplit_once("+0x")
        && offset.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        return module.to_owned();
    }
    let name = match name.rsplit_once("::h") {
        Some((path, hash)) if is_hash(hash, 16) => path,
        _ => name,
    };
    without_crate_hashes(name)
}

fn is_hash(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Of `app[0f2a3b4c5d6e7f80]::load` with v0 mangling, `app::load`.
fn without_crate_hashes(name: &str) -> String {
    let mut rest = name;
    let mut plain = String::with_capacity(name.len());
    while let Some(start) = rest.find('[') {
        let (before, inside) = rest.split_at(start);
        let Some(end) = inside.find(']') else {
            break;
        };
        plain.push_str(before);
        let digits = &inside[1..end];
        let is_crate_hash = digits.len() >= 8
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
            && inside[end + 1..].starts_with("::");
        match is_crate_hash {
            true => rest = &inside[end + 1..],
            false => {
                plain.push('[');
                rest = &inside[1..];
            }
        }
    }
    plain.push_str(rest);
    plain
}

/// All call sites of both, with what they have in each.
pub(super) fn matched<'r>(before: &Moment<'r>, after: &Moment<'r>) -> Vec<Change<'r>> {
    let is_one_run = std::ptr::eq(before.run, after.run);
    let (mut before, mut after) = (
        by_identity(before, Run::amount),
        by_identity(after, Run::amount),
    );
    let identities: BTreeSet<Identity> = before.keys().chain(after.keys()).cloned().collect();
    let mut changes = Vec::new();
    for identity in identities {
        let before = before.remove(&identity).unwrap_or_default();
        let after = after.remove(&identity).unwrap_or_default();
        let within = |a: &ByLines<'_>, b: &ByLines<'_>| a.keys().all(|lines| b.contains_key(lines));
        if is_one_run || within(&before, &after) || within(&after, &before) {
            by_lines(before, after, &mut changes);
        } else {
            by_order(before, after, &mut changes);
        }
    }
    changes
}

/// Each run has a line that the other one does not have.
fn by_order<'r>(mut before: ByLines<'r>, mut after: ByLines<'r>, changes: &mut Vec<Change<'r>>) {
    let pairs = before.keys().zip(after.keys());
    let in_front = pairs.take_while(|(old, new)| old == new);
    let in_front: Vec<_> = in_front.map(|(lines, _)| lines.clone()).collect();
    take_equal(in_front, &mut before, &mut after, changes);
    if !moved_as_one(&before, &after) {
        let in_both = before.keys().filter(|lines| after.contains_key(*lines));
        let in_both: Vec<_> = in_both.cloned().collect();
        take_equal(in_both, &mut before, &mut after, changes);
    }
    if before.len() == after.len() {
        let pairs = before.into_values().zip(after.into_values());
        changes.extend(pairs.map(|(before, after)| Change {
            site: after.site,
            before: before.amount,
            after: after.amount,
            matched: Match::Order,
        }));
        return;
    }
    let sum = |places: &ByLines<'r>| -> Amount { places.values().map(|place| place.amount).sum() };
    // The largest call site stands for all.
    let largest = after.values().max_by_key(|place| place.amount.bytes);
    changes.extend(largest.map(|largest| Change {
        site: largest.site,
        before: sum(&before),
        after: sum(&after),
        matched: Match::Functions,
    }));
}

/// Matches these lines, which both have.
fn take_equal<'r>(
    lines: Vec<Vec<u32>>,
    before: &mut ByLines<'r>,
    after: &mut ByLines<'r>,
    changes: &mut Vec<Change<'r>>,
) {
    for lines in lines {
        if let (Some(old), Some(new)) = (before.remove(&lines), after.remove(&lines)) {
            changes.push(Change {
                site: new.site,
                before: old.amount,
                after: new.amount,
                matched: Match::Lines,
            });
        }
    }
}

/// Whether all lines moved by the same distance, in each frame for itself.
fn moved_as_one(before: &ByLines<'_>, after: &ByLines<'_>) -> bool {
    let mut distances = before.keys().zip(after.keys()).map(|(old, new)| {
        let distance = |(old, new): (&u32, &u32)| i64::from(*new) - i64::from(*old);
        old.iter().zip(new).map(distance).collect::<Vec<_>>()
    });
    let first = distances.next();
    before.len() == after.len() && distances.all(|other| Some(other) == first)
}

fn by_lines<'r>(before: ByLines<'r>, mut after: ByLines<'r>, changes: &mut Vec<Change<'r>>) {
    for (lines, old) in before {
        let new = after.remove(&lines);
        changes.push(Change {
            site: new.map_or(old.site, |new| new.site),
            before: old.amount,
            after: new.map_or(Amount::default(), |new| new.amount),
            matched: match new {
                Some(_) => Match::Lines,
                None => Match::OnlyBefore,
            },
        });
    }
    changes.extend(after.into_values().map(|new| Change {
        site: new.site,
        before: Amount::default(),
        after: new.amount,
        matched: Match::OnlyAfter,
    }));
}

#[cfg(test)]
mod tests {
    use super::stable_name;
    use crate::run::Frame;

    #[test]
    fn names_are_the_same_in_every_build() {
        for (name, stable) in [
            ("app::load::h0123456789abcdef", "app::load"),
            ("app::load::hello", "app::load::hello"),
            ("app[0f2a3b4c5d6e7f80]::load", "app::load"),
            ("<[app[0f2a3b4c5d6e7f80]::T; 4]>::x", "<[app::T; 4]>::x"),
            ("f[", "f["),
            ("f[é", "f[é"),
            ("f[0f2a3b4c5d6e7f80\u{1f600}", "f[0f2a3b4c5d6e7f80\u{1f600}"),
            ("[]", "[]"),
            ("f[é]::g[", "f[é]::g["),
            ("libx.so+0x1234", "libx.so"),
            ("operator+0x", "operator"),
            ("void f<int>(int)", "void f<int>(int)"),
        ] {
            let function = name.to_owned();
            let frame = Frame {
                function,
                ..Frame::default()
            };
            assert_eq!(stable_name(&frame), stable, "{name}");
        }
        let line = Frame {
            function: "src/a.rs:7".to_owned(),
            file: "src/a.rs".to_owned(),
            line: 7,
            ..Frame::default()
        };
        assert_eq!(stable_name(&line), "");
    }
}
