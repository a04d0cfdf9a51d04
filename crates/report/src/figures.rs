//! The figures of a running process as plain data, with names: what its [`Stats`](crate::Stats) become, and what a reader of
//! their JSON has. `cuguard watch` and [`Metrics`](crate::Metrics) show them.

use std::time::Duration;

use cuguard_registry::{Amount, Totals};

/// The figures of one library in a process: the crate and the audit library of `cuguard run` have their own, and no resource is
/// in both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The process.
    pub process: u32,
    /// Its command line.
    pub command: String,
    /// The path of its program. Empty where it is not known.
    pub program: String,
    /// The time of the figures, from any fixed moment of the process.
    pub time: Duration,
    /// By kind, for kinds that were ever allocated.
    pub kinds: Vec<KindFigures>,
    /// By device, for devices that the process has used.
    pub devices: Vec<DeviceFigures>,
    /// The largest call sites, the largest first.
    pub sites: Vec<SiteFigures>,
    /// How many call sites there are besides.
    pub sites_not_shown: u64,
}

/// The figures of one kind of resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KindFigures {
    /// Its [name](crate::Stats::totals) in JSON. It may be of a later version.
    pub kind: String,
    /// Whether it is device memory.
    pub on_device: bool,
    /// What is alive, the peak, and how many were allocated.
    pub totals: Totals,
}

/// The figures of one device: all kinds of device memory together.
///
/// Live bytes are the requested sizes. A pool's rounding counts as neither live nor cached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceFigures {
    /// Its ordinal, as the process sees it. `None` where it is not known, and for memory of the host that is refused.
    pub device: Option<u32>,
    /// What is alive.
    pub live: Amount,
    /// The most bytes that were alive at one time. Of a program that uses the crate, an upper bound: of each kind, the highest sum
    /// of the peaks of contexts that were open at one time, and of these the sum. It never goes down.
    pub peak_bytes: u64,
    /// What pools hold and no live block uses, where that is known. Of a program that uses the crate: of its pools, not of the
    /// driver's, and `None` where no open context has had one.
    pub cached_bytes: Option<u64>,
    /// The allocations that failed for lack of memory, and the bytes that they asked for.
    pub refused: Amount,
}

/// What one call site holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteFigures {
    /// The kind of resource.
    pub kind: String,
    /// How many, and how many bytes.
    pub amount: Amount,
    /// The label.
    pub label: Option<String>,
    /// The function of the program.
    pub function: Option<String>,
    /// The source file, and the line in it.
    pub file: Option<String>,
    /// The line.
    pub line: Option<u32>,
}

impl SiteFigures {
    /// `load_weights inference.c:3`, without the label: the program may make labels up without end, and it has only so many
    /// call sites.
    ///
    /// ```
    /// use cuguard_report::SiteFigures;
    ///
    /// let site = SiteFigures { function: Some("main".into()), file: Some("a.c".into()), line: Some(3), ..SiteFigures::default() };
    /// assert_eq!(site.name(), "main a.c:3");
    /// assert_eq!(SiteFigures::default().name(), "unknown call site");
    /// ```
    #[must_use]
    pub fn name(&self) -> String {
        let place = self.file.as_ref().map(|file| match self.line {
            Some(line) => format!("{file}:{line}"),
            None => file.clone(),
        });
        let parts = [self.function.clone(), place];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        match parts.is_empty() {
            true => "unknown call site".to_owned(),
            false => parts.join(" "),
        }
    }
}
