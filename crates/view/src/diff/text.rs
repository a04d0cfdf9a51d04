//! A difference as text.

use std::fmt::Write;

use cuguard_report::ByteSize;

use super::{Change, Diff, Match};
use crate::look::Look;
use crate::moment::Moment;
use crate::stack_text::{difference, stack};
use cuguard_report::phrase::{count, printable};

impl Diff<'_> {
    /// As text, with a line break at its end. [`Look::by`] is not used: differences are by call site.
    #[must_use]
    pub fn text(&self, look: Look) -> String {
        let mut page = String::new();
        let (before, after) = (side(self.before), side(self.after));
        let _ = writeln!(page, "cuguard: from {before}\n         to {after}");
        let (old, new) = (self.before.total, self.after.total);
        let _ = writeln!(
            page,
            "  {} in {} → {} in {}: {}",
            ByteSize(old.bytes),
            count(old.count, "resource"),
            ByteSize(new.bytes),
            count(new.count, "resource"),
            difference(i128::from(new.bytes) - i128::from(old.bytes)),
        );
        let mut runs = vec![self.before.run];
        if !std::ptr::eq(self.before.run, self.after.run) {
            runs.push(self.after.run);
        }
        for run in runs {
            for caveat in run.caveats() {
                let _ = writeln!(page, "  {}: {caveat}", printable(&run.source));
            }
        }
        let shown = look
            .top
            .unwrap_or(self.changes.len())
            .min(self.changes.len());
        for change in self.shown(shown) {
            page.push('\n');
            one(&mut page, change);
            stack(&mut page, change.site, look.frames);
        }
        if shown < self.changes.len() {
            let all = self.changes.len();
            let _ = writeln!(
                page,
                "\n… {shown} of {all} call sites with a difference shown; --top {all} shows all"
            );
        }
        if self.unchanged > 0 {
            let _ = writeln!(
                page,
                "\nunchanged: {} with {}",
                count(self.unchanged, "call site"),
                ByteSize(self.unchanged_amount.bytes),
            );
        }
        page
    }

    /// The changes with the largest difference, in either direction, in the order of all.
    pub(super) fn shown(&self, most: usize) -> impl Iterator<Item = &Change<'_>> {
        let mut order: Vec<usize> = (0..self.changes.len()).collect();
        let size = |change: &Change<'_>| (change.bytes().abs(), change.count().abs());
        order.sort_by_key(|index| std::cmp::Reverse(size(&self.changes[*index])));
        order.truncate(most);
        order.sort_unstable();
        order.into_iter().map(|index| &self.changes[index])
    }
}

fn side(moment: &Moment<'_>) -> String {
    let run = moment.run;
    let source = printable(&run.source);
    format!("{source} ({}), {}", printable(&run.title()), moment.words())
}

fn one(page: &mut String, change: &Change<'_>) {
    let (before, after) = (change.before, change.after);
    let note = match change.matched {
        Match::Lines => "",
        Match::Order => "; its line changed",
        Match::Functions => "; lines changed: the sum of several call sites",
        Match::OnlyBefore => "; nothing is left",
        Match::OnlyAfter => "; new",
    };
    let _ = writeln!(
        page,
        "{}: {} → {} in {} → {}{note}",
        difference(change.bytes()),
        ByteSize(before.bytes),
        ByteSize(after.bytes),
        before.count,
        count(after.count, "resource"),
    );
}
