//! What a program has of a module or a library: functions, kernels and variables. The driver returns the module of a function
//! (`cuFuncGetModule`) and the library of a kernel (`cuKernelGetLibrary`), so a program that has these has the module.

use std::collections::HashMap;
use std::sync::Mutex;

use cuguard_registry::ResourceKind;

/// A module or a library, by its handle.
pub(crate) type Owner = (ResourceKind, u64);

#[derive(Debug, Default)]
struct Table {
    /// Of each owner the handles or addresses of its parts, and their length; 0 for handles.
    parts: HashMap<Owner, Vec<(u64, u64)>>,
    owners: HashMap<u64, Owner>,
}

static TABLE: Mutex<Option<Table>> = Mutex::new(None);

/// Runs `change` with the table. It is short, and calls no driver.
fn with<T>(change: impl FnOnce(&mut Table) -> T) -> T {
    let mut table = cuguard_sync::lock(&TABLE);
    change(table.get_or_insert_default())
}

/// Records a part of what has the handle, which may be a part itself: the function of a kernel is one of the kernel's library.
pub(crate) fn found(kind: ResourceKind, handle: u64, part: u64, bytes: u64) {
    with(|table| {
        let owner = table.owners.get(&handle).copied();
        let owner = owner.unwrap_or((kind, handle));
        // The driver returns the same handle each time.
        if table.owners.insert(part, owner) != Some(owner) {
            table.parts.entry(owner).or_default().push((part, bytes));
        }
    });
}

/// Forgets the parts of what is unloaded, and returns them.
pub(crate) fn take(owner: Owner) -> Vec<(u64, u64)> {
    with(|table| {
        let parts = table.parts.remove(&owner).unwrap_or_default();
        for (part, _) in &parts {
            if table.owners.get(part) == Some(&owner) {
                table.owners.remove(part);
            }
        }
        parts
    })
}

/// Records parts again, where the driver did not unload.
pub(crate) fn put_back((kind, handle): Owner, parts: Vec<(u64, u64)>) {
    for (part, bytes) in parts {
        found(kind, handle, part, bytes);
    }
}

/// The parts of a module or library that the program has asked for: handles or addresses, and lengths.
pub(crate) fn of(owner: Owner) -> Vec<(u64, u64)> {
    with(|table| table.parts.get(&owner).cloned().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use cuguard_registry::ResourceKind;

    use super::{found, of, put_back, take};

    #[test]
    fn parts_of_parts_belong_to_the_library() {
        let library = (ResourceKind::Library, 0x7000_1000);
        found(ResourceKind::Library, library.1, 0x7000_2000, 0);
        found(ResourceKind::Library, library.1, 0x7000_2000, 0);
        found(ResourceKind::Library, 0x7000_2000, 0x7000_3000, 0);
        found(ResourceKind::Module, 0x7000_3000, 0x7000_4000, 64);
        let parts = [(0x7000_2000, 0), (0x7000_3000, 0), (0x7000_4000, 64)];
        assert_eq!(of(library), parts);
        assert_eq!(of((ResourceKind::Module, 0x7000_3000)), []);
        assert_eq!(take(library), parts);
        assert_eq!(of(library), []);
        put_back(library, parts.into());
        assert_eq!(take(library), parts);
        // The driver uses handles again.
        found(ResourceKind::Module, 0x7000_2000, 0x7000_3000, 0);
        assert_eq!(of((ResourceKind::Module, 0x7000_2000)), [(0x7000_3000, 0)]);
    }
}
