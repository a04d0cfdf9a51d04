//! The tables of the text: what is alive by call site, library and holder, and what was alive at the peak.

use cuguard_registry::Fate;

use super::page::{FEW, Page};
use super::tables::Share;
use crate::paint::Tone;
use crate::phrase::{count, printable};
use crate::size::ByteSize;
use crate::words::age;

/// How many rows a table has at most.
const TABLE: usize = 10;

/// The same for a table that is only looked at after the first.
const SHORT_TABLE: usize = 5;

impl Page<'_, '_> {
    pub(super) fn tables(&mut self) {
        let prepared = self.prepared;
        if self.has_call_sites() {
            self.table("by call site", &prepared.by_frame, TABLE);
        }
        self.table("by library", &prepared.by_library, SHORT_TABLE);
        if !self.is_listed(Fate::Reachable) {
            self.shares("reachable from:", &prepared.by_holder, SHORT_TABLE);
        }
    }

    /// Of a few groups, the stack traces say more.
    fn has_call_sites(&self) -> bool {
        let alive = [Fate::Lost, Fate::Unclassified, Fate::Reachable];
        let groups = alive.iter().map(|fate| self.of(*fate).len());
        groups.sum::<usize>() > FEW
    }

    /// Whether there is a table of what is alive.
    pub(super) fn has_tables(&self) -> bool {
        let prepared = self.prepared;
        (self.has_call_sites() && is_table(&prepared.by_frame))
            || is_table(&prepared.by_library)
            || !self.is_listed(Fate::Reachable)
    }

    fn table(&mut self, title: &str, shares: &[Share], most: usize) {
        if is_table(shares) {
            self.shares(&format!("{title}:"), shares, most);
        }
    }

    fn shares(&mut self, title: &str, shares: &[Share], most: usize) {
        let title = self.paint(Tone::Strong, title);
        self.line("");
        self.line(title);
        let amounts: Vec<_> = shares.iter().take(most).map(share_amount).collect();
        let widths = amounts.iter().map(|amount| amount.chars().count());
        let width = widths.max().unwrap_or_default();
        for (share, amount) in shares.iter().zip(&amounts) {
            let (name, location) = match &share.frame {
                Some(frame) => self.frame(frame),
                None => (printable(&share.name).into_owned(), String::new()),
            };
            let row = format!("  {amount:<width$}  {name}  {location}");
            self.line(row.trim_end());
        }
        if shares.len() > most {
            let rest = shares[most..].iter().map(|share| share.live).sum();
            let more = count((shares.len() - most) as u64, "more row");
            let rest = Share {
                live: rest,
                ..Share::default()
            };
            self.line(format!("  {:<width$}  in {more}", share_amount(&rest)));
        }
    }

    pub(super) fn peak(&mut self) {
        let Some(peak) = &self.prepared.peak else {
            return;
        };
        let title = format!(
            "at the peak, {} of device memory after {} (within 2 %)",
            ByteSize(peak.bytes),
            age(peak.time)
        );
        match self.prepared.ends_at_its_peak() {
            true => {
                let title = self.paint(Tone::Strong, &title);
                self.line("");
                self.line(format!("{title}: all of it is still alive"));
            }
            false => self.shares(&format!("{title}:"), &peak.shares, SHORT_TABLE),
        }
    }
}

/// One row says no more than the sum.
fn is_table(shares: &[Share]) -> bool {
    shares.len() >= 2
}

fn share_amount(share: &Share) -> String {
    let one = |bytes: u64, number: u64| match bytes {
        0 => count(number, "resource"),
        bytes => format!("{} in {number}", ByteSize(bytes)),
    };
    let live = one(share.live.bytes, share.live.count);
    match share.lost.count {
        0 => live,
        _ => format!("{live}, lost {}", one(share.lost.bytes, share.lost.count)),
    }
}
