//! Many runs side by side: the ranks of a distributed job, and the one that differs.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

use cuguard_report::ByteSize;
use serde_json::{Value, json};

use crate::diff::{Identity, by_identity};
use crate::json_parts::{clamped, identity, stack};
use crate::look::Look;
use crate::run::{Allocation, CallSite, Run};
use crate::stack_text::{difference, stack as stack_text};
use crate::summary::Overview;
use cuguard_registry::Amount;
use cuguard_report::phrase::printable;

/// Runs side by side, the one that differs most from the median first.
#[derive(Clone, Debug)]
pub struct Ranks<'r> {
    /// The device memory that a run has in the middle of all; all memory where no run has device memory.
    pub median: u64,
    /// All runs: what differs most from the median first, equal ones by rank, process id and file.
    pub rows: Vec<Rank<'r>>,
    /// Where the first differs from the others, the largest difference first.
    pub differences: Vec<Difference<'r>>,
}

/// One run among others.
#[derive(Clone, Debug)]
pub struct Rank<'r> {
    /// The run and its moment.
    pub overview: &'r Overview<'r>,
    /// What it had at the moment.
    pub bytes: u64,
    /// The difference from the median.
    pub difference: i128,
}

/// A call site of which the first run has more or less than the others.
#[derive(Clone, Debug)]
pub struct Difference<'r> {
    /// The call site.
    pub site: &'r CallSite,
    /// What the first run has.
    pub bytes: u64,
    /// What a run has in the middle of all.
    pub median: u64,
}

impl Difference<'_> {
    fn bytes_more(&self) -> i128 {
        i128::from(self.bytes) - i128::from(self.median)
    }
}

impl<'r> Ranks<'r> {
    /// Compares runs, each at the moment of its overview.
    ///
    /// ```
    /// use cuguard_view::{Allocation, At, FOREVER, RecordedKind, Overview, Ranks, Run};
    ///
    /// let run = |rank, bytes| Run {
    ///     rank: Some(rank),
    ///     kinds: vec![RecordedKind { name: "device".to_owned(), on_device: true, is_memory: true }],
    ///     allocations: vec![Allocation { end: FOREVER, bytes, ..Allocation::default() }],
    ///     ..Run::default()
    /// };
    /// let runs = [run(0, 100), run(1, 100), run(2, 900)];
    /// let overviews = runs.iter().map(|run| Overview::new(run, At::Peak)).collect::<Result<Vec<_>, _>>()?;
    /// let ranks = Ranks::new(&overviews);
    /// assert_eq!((ranks.rows[0].overview.moment.run.rank, ranks.rows[0].difference), (Some(2), 800));
    /// # Ok::<(), cuguard_view::ViewError>(())
    /// ```
    #[must_use]
    pub fn new(overviews: &'r [Overview<'r>]) -> Self {
        let moments = || overviews.iter().map(|overview| &overview.moment);
        let on_device = moments().any(|moment| moment.device_bytes > 0);
        let bytes = |overview: &Overview<'_>| match on_device {
            true => overview.moment.device_bytes,
            false => overview.moment.total.bytes,
        };
        let median = median(overviews.iter().map(bytes).collect());
        let rows = overviews.iter().map(|overview| Rank {
            overview,
            bytes: bytes(overview),
            difference: i128::from(bytes(overview)) - i128::from(median),
        });
        let mut rows: Vec<Rank<'r>> = rows.collect();
        rows.sort_by_key(|row| {
            let run = row.overview.moment.run;
            let name = (run.rank, run.pid, run.source.as_str());
            (Reverse(row.difference.unsigned_abs()), name)
        });
        let differences = match rows.first() {
            Some(first) => differences(overviews, first.overview, on_device),
            None => Vec::new(),
        };
        Self {
            median,
            rows,
            differences,
        }
    }

    /// As text, with a line break at its end.
    #[must_use]
    pub fn text(&self, look: Look) -> String {
        let mut page = String::new();
        let Some(first) = self.rows.first() else {
            return page;
        };
        let moment = &first.overview.moment;
        let title = printable(&moment.run.title()).into_owned();
        let many = self.rows.len();
        let _ = match first.difference {
            0 => writeln!(
                page,
                "cuguard: {many} runs, each with {} alive",
                ByteSize(self.median)
            ),
            more => writeln!(
                page,
                "cuguard: {many} runs: {title} differs most: {} alive {}, {} than the median of {}",
                ByteSize(first.bytes),
                moment.words(),
                difference(more),
                ByteSize(self.median),
            ),
        };
        self.table(&mut page);
        for run in self.rows.iter().map(|row| row.overview.moment.run) {
            for caveat in run.caveats() {
                let _ = writeln!(page, "\nnote: {}: {caveat}", printable(&run.source));
            }
        }
        if first.difference == 0 && self.differences.is_empty() {
            return page;
        }
        let all = self.differences.len();
        let shown = look.top.unwrap_or(all).min(all);
        if shown > 0 {
            let _ = writeln!(page, "\nwhere {title} differs:");
        }
        for row in &self.differences[..shown] {
            let _ = writeln!(
                page,
                "\n{}: {}, median {}",
                difference(row.bytes_more()),
                ByteSize(row.bytes),
                ByteSize(row.median),
            );
            stack_text(&mut page, row.site, look.frames);
        }
        if shown < all {
            let _ = writeln!(
                page,
                "\n… {shown} of {all} call sites shown; --top {all} shows all"
            );
        }
        page
    }

    fn table(&self, page: &mut String) {
        let heads = [
            "run",
            "alive",
            "against the median",
            "peak",
            "at the end",
            "file",
        ];
        let mut table = vec![heads.map(str::to_owned)];
        table.extend(self.rows.iter().map(|row| {
            let (overview, run) = (row.overview, row.overview.moment.run);
            [
                printable(&run.title()).into_owned(),
                ByteSize(row.bytes).to_string(),
                match row.difference {
                    0 => "equal".to_owned(),
                    bytes => difference(bytes),
                },
                match run.is_report {
                    true => "not known".to_owned(),
                    false => ByteSize(overview.peak.device_bytes).to_string(),
                },
                ByteSize(overview.device_bytes_at_end).to_string(),
                printable(&run.source).into_owned(),
            ]
        }));
        let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<_> = (0..heads.len())
            .map(|column| width(column).unwrap_or(0))
            .collect();
        page.push('\n');
        for row in &table {
            let cells = row.iter().zip(&widths);
            let cells: Vec<_> = cells
                .map(|(cell, width)| format!("{cell:<width$}"))
                .collect();
            let _ = writeln!(page, "  {}", cells.join("   ").trim_end());
        }
    }

    pub(crate) fn json(&self, look: Look) -> Value {
        let rows = self.rows.iter().map(|row| {
            let mut object = identity(row.overview.moment.run);
            object["bytes"] = row.bytes.into();
            object["difference"] = clamped(row.difference).into();
            object
        });
        let all = self.differences.len();
        let shown = look.top.unwrap_or(all).min(all);
        let differences = self.differences[..shown].iter().map(|row| {
            json!({
                "bytes": row.bytes,
                "median": row.median,
                "stack": stack(row.site, look.frames),
            })
        });
        json!({
            "median": self.median,
            "rows": rows.collect::<Value>(),
            "differences": differences.collect::<Value>(),
            "differences_not_shown": all - shown,
        })
    }
}

/// Of an even number the lower one of the middle: a figure that a run has.
fn median(mut numbers: Vec<u64>) -> u64 {
    numbers.sort_unstable();
    let middle = numbers.len().saturating_sub(1) / 2;
    numbers.get(middle).copied().unwrap_or(0)
}

/// A call site, and the bytes of each run that has it: whether it is the one that is compared, and how many.
type Held<'r> = (&'r CallSite, Vec<(bool, u64)>);

/// The call sites of which one run has another amount than the median.
///
/// It compares what the table of runs compares: device memory, or all memory.
fn differences<'r>(
    overviews: &'r [Overview<'r>],
    one: &Overview<'r>,
    on_device: bool,
) -> Vec<Difference<'r>> {
    let measure = |run: &Run, allocation: &Allocation| match on_device {
        true => Amount {
            count: 1,
            bytes: run.device_bytes(allocation),
        },
        false => run.amount(allocation),
    };
    let mut sites: BTreeMap<(Identity, Vec<u32>), Held<'r>> = BTreeMap::new();
    for overview in overviews {
        let is_one = std::ptr::eq(overview, one);
        for (identity, by_lines) in by_identity(&overview.moment, measure) {
            for (lines, place) in by_lines {
                let entry = sites.entry((identity.clone(), lines));
                let entry = entry.or_insert((place.site, Vec::new()));
                entry.1.push((is_one, place.amount.bytes));
            }
        }
    }
    let rows = sites.into_values().map(|(site, bytes)| {
        let own = bytes.iter().find(|(is_one, _)| *is_one);
        let mut all: Vec<u64> = bytes.iter().map(|(_, bytes)| *bytes).collect();
        // Runs without it.
        all.resize(overviews.len(), 0);
        Difference {
            site,
            bytes: own.map_or(0, |(_, bytes)| *bytes),
            median: median(all),
        }
    });
    let mut rows: Vec<_> = rows.filter(|row| row.bytes != row.median).collect();
    // Stable: equal differences stay in the order of call sites.
    rows.sort_by_key(|row| Reverse(row.bytes_more().unsigned_abs()));
    rows
}
