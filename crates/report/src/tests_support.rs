//! Shared by the unit tests.

use std::panic::Location;
use std::rc::Rc;

use cuguard_registry::{Entry, Key, Registry};

use crate::symbols::{Frame, ModuleOffset, Symbol};

/// Records at the calling line.
pub(crate) trait Insert {
    /// [`Registry::insert_at`] the calling line.
    fn insert(&self, key: Key, entry: Entry);
}

impl Insert for Registry {
    #[track_caller]
    fn insert(&self, key: Key, entry: Entry) {
        self.insert_at(Location::caller(), key, entry);
    }
}

/// One `u8` of device memory.
pub(crate) const ONE_BYTE: Entry = Entry {
    bytes: 1,
    type_name: "u8",
    stream: 0,
};

/// A frame of a function in a module.
pub(crate) fn frame(module: &str, function: &str) -> Frame {
    Frame {
        address: 1,
        symbol: Rc::new(Symbol {
            function: Some(function.to_owned()).filter(|name| !name.is_empty()),
            ..Symbol::default()
        }),
        module: Some(ModuleOffset {
            path: module.into(),
            offset: 0,
            build_id: "".into(),
            library: 0,
        }),
        inlined: false,
        own: false,
        in_app: false,
    }
}

/// Reads JSON.
pub(crate) fn read(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("it is JSON")
}

/// The elements of an array.
pub(crate) fn items(value: &serde_json::Value) -> &[serde_json::Value] {
    value.as_array().expect("it is an array")
}

/// The names of all members, at every depth.
pub(crate) fn member_names(value: &serde_json::Value) -> Vec<String> {
    use serde_json::Value;
    match value {
        Value::Array(items) => items.iter().flat_map(member_names).collect(),
        Value::Object(members) => {
            let inner = members.values().flat_map(member_names);
            members.keys().cloned().chain(inner).collect()
        }
        _ => Vec::new(),
    }
}
