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

    /// The report, if one was written.
    fn json(&self) -> Check<Option<Value>> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        if text.is_empty() {
            return Ok(None);
        }
        let json = serde_json::from_str(&text);
        json.map_err(|error| Stop::Mismatch(format!("the report: {error}")))
    }

    /// The count and the bytes of the leaks of one kind, by the report.
    pub fn amount_of(&self, kind: &str) -> Check<(u64, u64)> {
        let mut sum = (0, 0);
        if let Some(json) = self.json()? {
            add_kind(&json["leaks"], kind, &mut sum);
        }
        Ok(sum)
    }

    /// Whether there is no report, or one without a leak and without a failed free.
    pub fn is_clean(&self) -> Check<bool> {
        Ok(self.json()?.is_none_or(|json| {
            let none = |key: &str| json[key].as_array().is_some_and(Vec::is_empty);
            json["leaked"] == false && none("leaks") && none("escaped") && none("failed_frees")
        }))
    }

    /// Compares the report with what must have leaked.
    pub fn check(&self, registry: &Registry) -> Check {
        let leaked = registry.leaked();
        let Some(json) = self.json()? else {
            return ensure_eq("what leaks without a report", Amount::default(), leaked);
        };
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

/// Adds the counts and bytes of one kind in a list, with indirect leaks.
fn add_kind(list: &Value, kind: &str, sum: &mut (u64, u64)) {
    for entry in list.as_array().into_iter().flatten() {
        let number = |key: &str| entry[key].as_u64().unwrap_or(u64::MAX);
        if entry["kind"] == kind {
            *sum = (sum.0 + number("count"), sum.1 + number("bytes"));
        }
        add_kind(&entry["indirect"], kind, sum);
    }
}
