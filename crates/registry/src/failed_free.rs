//! Frees that the driver refused.

use std::panic::Location;

use crate::call_site::{self, CallSiteId, MAX_DEPTH};
use crate::names::{self, NameId};
use crate::record::{Key, Record};

/// A free that the driver refused: the resource, where it was allocated, where it was to be freed, and
/// the error.
#[derive(Clone, Copy, Debug)]
pub struct FailedFree {
    pub(crate) key: Key,
    pub(crate) record: Record,
    pub(crate) freed: CallSiteId,
    /// The driver's function.
    pub(crate) function: NameId,
    pub(crate) code: u32,
    pub(crate) code_name: NameId,
}

impl FailedFree {
    /// `record` is what [`Registry::remove`](crate::Registry::remove) returned. Keeps the calling line
    /// and its stack trace at every level: failures are rare, and a drop has no line of its own.
    #[track_caller]
    #[must_use]
    pub fn new(
        key: Key,
        bytes: u64,
        record: Option<Record>,
        function: &'static str,
        code: u32,
        code_name: impl AsRef<str>,
    ) -> Self {
        Self {
            key,
            record: record.unwrap_or_else(|| Record::unknown(bytes)),
            freed: call_site::intern_stack(Some(Location::caller()), "", MAX_DEPTH),
            function: names::intern(function),
            code,
            code_name: names::intern(code_name.as_ref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FailedFree;
    use crate::call_site;
    use crate::kind::ResourceKind;
    use crate::record::Key;

    #[test]
    fn a_failed_free_keeps_the_stack_that_wanted_to_free() {
        let key = Key {
            kind: ResourceKind::Device,
            slot: 0,
            address: 0x1000,
        };
        let failed = FailedFree::new(key, 5, None, "cuMemFree", 1, "CUDA_ERROR_INVALID_VALUE");
        assert_eq!(failed.record.bytes(), 5);
        let freed = call_site::get(failed.freed).unwrap();
        assert!(freed.site.unwrap().file().ends_with("failed_free.rs"));
        assert!(!freed.stack.is_empty());
    }
}
