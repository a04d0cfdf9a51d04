//! A diff of two snapshots as text.

use std::fmt;

use cuguard_registry::{Amount, Change, Diff};

use crate::frames::mark;
use crate::paths::Paths;
use crate::phrase::count;
use crate::size::ByteSize;
use crate::symbols::Symbols;
use crate::words::{amount_of, description};

/// A diff as text: one line for each change. `{:.3}` shows the three largest.
///
/// ```
/// use cuguard::report::display_diff;
/// use cuguard::snapshot::Diff;
///
/// assert_eq!(display_diff(&Diff::default()).to_string(), "nothing changed");
/// ```
pub fn display_diff(diff: &Diff) -> impl fmt::Display + '_ {
    DisplayDiff(diff)
}

struct DisplayDiff<'a>(&'a Diff);

impl fmt::Display for DisplayDiff<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes = &self.0.changes;
        if changes.is_empty() {
            return f.write_str("nothing changed");
        }
        let (paths, mut symbols) = (Paths::new(), Symbols::default());
        let shown = f.precision().unwrap_or(usize::MAX).min(changes.len());
        for (index, change) in changes[..shown].iter().enumerate() {
            let gap = if index == 0 { "" } else { "\n" };
            write!(f, "{gap}{}", line(change, &paths, &mut symbols))?;
        }
        let all = count(changes.len() as u64, "change");
        match shown {
            _ if shown == changes.len() => Ok(()),
            0 => write!(f, "0 of {all} shown"),
            _ => write!(f, "\n… {shown} of {all} shown"),
        }
    }
}

fn line(change: &Change, paths: &Paths, symbols: &mut Symbols) -> String {
    let (before, after, kind) = (change.before, change.after, change.kind);
    let what = description(change.type_name, change.label.as_deref());
    let amount = |amount: Amount| match kind.is_memory() {
        true => format!("{} in {}", ByteSize(amount.bytes), amount.count),
        false => amount.count.to_string(),
    };
    let mut line = format!("{:<8}  ", change.trend());
    line += &match (before.count, after.count) {
        (0, _) => format!("{}{what}", amount_of(kind, after)),
        (_, 0) => format!("{}{what}", amount_of(kind, before)),
        _ => format!("{kind}{what}: from {} to {}", amount(before), amount(after)),
    };
    if let Some(site) = change.origin.site {
        line += &format!(", at {}", paths.site(site));
    }
    let mut frames = symbols.frames(change.origin.stack, false);
    mark(&mut frames);
    let innermost = frames.iter().find(|frame| frame.in_app);
    if let Some(name) = innermost.and_then(|frame| frame.symbol.function.as_deref()) {
        line += &format!(" in {name}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::display_diff;
    use crate::tests_support::{Insert, ONE_BYTE};
    use cuguard_registry::{
        ContextInfo, Group, Key, Registry, ResourceKind, Site, Snapshot, TrackingLevel,
    };

    fn snapshot(groups: &[(ResourceKind, u32, u64, u64)]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (kind, line, count, bytes) in groups {
            let mut group = Group::new(*kind, "", *count, *bytes);
            group.origin.site = Some(Site::new("a.rs", *line, 1));
            snapshot.live.push(group);
        }
        snapshot
    }

    #[test]
    fn one_line_for_each_change() {
        let before = snapshot(&[
            (ResourceKind::Device, 1, 1, 1024),
            (ResourceKind::Event, 2, 4, 0),
            (ResourceKind::Pinned, 3, 1, 8),
        ]);
        let after = snapshot(&[
            (ResourceKind::Device, 1, 3, 3072),
            (ResourceKind::Event, 2, 1, 0),
            (ResourceKind::Managed, 4, 2, 6),
        ]);
        let diff = after.diff(&before);
        assert_eq!(
            display_diff(&diff).to_string(),
            "grew      device memory: from 1 KiB in 1 to 3 KiB in 3, at a.rs:1:1\n\
             went      8 B in 1 allocation of pinned host memory, at a.rs:3:1\n\
             appeared  6 B in 2 allocations of managed memory, at a.rs:4:1\n\
             shrank    event: from 4 to 1, at a.rs:2:1"
        );
        assert!(
            format!("{:.1}", display_diff(&diff)).ends_with("a.rs:1:1\n… 1 of 4 changes shown")
        );
        assert_eq!(
            format!("{:.0}", display_diff(&diff)),
            "0 of 4 changes shown"
        );
        assert_eq!(
            display_diff(&after.diff(&after)).to_string(),
            "nothing changed"
        );
    }

    #[test]
    fn a_change_with_a_stack_names_its_function() {
        #[inline(never)]
        fn allocated_here(registry: &Registry) {
            let key = Key::new(ResourceKind::Device, 1);
            registry.insert(key, ONE_BYTE);
            std::hint::black_box(());
        }
        let registry = Registry::new(TrackingLevel::Stacks, 32);
        let before = registry.snapshot(ContextInfo::default());
        allocated_here(&registry);
        let diff = registry.snapshot(ContextInfo::default()).diff(&before);
        let text = display_diff(&diff).to_string();
        assert!(
            text.starts_with("appeared  1 B in 1 allocation of device memory, u8, at src/"),
            "{text}"
        );
        assert!(text.contains(" in "), "{text}");
    }
}
