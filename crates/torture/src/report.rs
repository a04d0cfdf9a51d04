//! The report that a context writes when it ends, parsed and checked.

use cuguard::report::ReportSettings;
use cuguard::snapshot::Amount;
use serde_json::Value;
use tempfile::TempPath;

use crate::mismatch::{Check, Stop, ensure_eq};
use crate::model::Registry;

/// A file for one report, removed on drop.
#[derive(Debug)]
pub struct File(TempPath);

impl File {
    pub fn new() -> Self {
        let file = tempfile::NamedTempFile::new().expect("a file can be created");
        Self(file.into_temp_path())
    }

    pub fn settings(&self) -> Check<ReportSettings> {
        let path = self.0.to_string_lossy().replace('%', "%%");
        ReportSettings::json()
            .file(&path)
            .map_err(|error| Stop::Mismatch(error.to_string()))
    }

    /// Compares the report with what must have leaked.
    pub fn check(&self, registry: &Registry) -> Check {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        let leaked = registry.leaked();
        if text.is_empty() {
            return ensure_eq("what leaks without a report", Amount::default(), leaked);
        }
        let json: Value = serde_json::from_str(&text)
            .map_err(|error| Stop::Mismatch(format!("the report: {error}")))?;
        let mut reported = sum(&json["leaks"]);
        reported += sum(&json["unrecorded"]);
        ensure_eq("the report's leaks", reported, leaked)?;
        ensure_eq(
            "the report's `leaked`",
            &json["leaked"],
            &Value::Bool(!leaked.is_zero()),
        )?;
        let escaped = sum(&json["escaped"]);
        ensure_eq("the report's escapes", escaped, registry.recorded(true))?;
        ensure_eq(
            "the report's failed frees",
            json["failed_frees"].as_array().map(Vec::len),
            Some(0),
        )
    }
}

/// Counts and bytes of a list, with indirect leaks.
fn sum(list: &Value) -> Amount {
    let mut sum = Amount::default();
    for entry in list.as_array().into_iter().flatten() {
        let number = |key: &str| entry[key].as_u64().unwrap_or(u64::MAX);
        sum += Amount::new(number("count"), number("bytes"));
        sum += self::sum(&entry["indirect"]);
    }
    sum
}
