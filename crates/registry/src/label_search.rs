//! Which labels the records have, so that others can be freed.

use std::sync::OnceLock;

use cuguard_sync::lock;

use crate::labels;
use crate::names::NameId;
use crate::record::{Key, Record};
use crate::registry::Registry;

/// Calls a function with each registry.
type ForEach = fn(&mut dyn FnMut(&Registry));

static REGISTRIES: OnceLock<ForEach> = OnceLock::new();

/// Labels that no record has are freed from now on. `for_each` calls a function with each registry whose records have
/// [labels](crate::label); of others they are lost. The first call counts.
///
/// ```no_run
/// use cuguard_registry::{TrackingLevel, Registry};
/// use std::sync::LazyLock;
///
/// static REGISTRY: LazyLock<Registry> = LazyLock::new(|| Registry::new(TrackingLevel::Sites, 32));
/// cuguard_registry::free_labels(|visit| visit(&REGISTRY));
/// ```
pub fn free_labels(for_each: ForEach) {
    let _ = REGISTRIES.set(for_each);
    let _ = labels::SEARCH.set(search);
}

fn search(visit: &mut dyn FnMut(NameId)) {
    if let Some(for_each) = REGISTRIES.get() {
        for_each(&mut |registry| registry.for_each_label(visit));
    }
}

impl Registry {
    /// Calls `visit` with each label of a record, of a failed free and of the baseline.
    fn for_each_label(&self, visit: &mut dyn FnMut(NameId)) {
        let mut visit_record = |key: &Key, record: &Record| {
            // Not a label there, but the number of a context.
            if !key.is_by_address() {
                visit(record.scope);
            }
            visit(record.name);
        };
        self.for_each(&mut visit_record);
        for failed in lock(&self.failed).iter() {
            visit_record(&failed.key, &failed.record);
        }
        for line in lock(&self.baseline).iter().flat_map(|lines| lines.keys()) {
            line.labels().into_iter().for_each(&mut *visit);
        }
    }
}
