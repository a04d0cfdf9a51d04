//! The cases, by topic. Each case is a function whose comment states the rule that it checks.
//!
//! A case knows nothing of the driver it runs on, except where it declares that the simulated GPU differs.

use crate::case::Entry;

/// Lists a file's cases, in the order in which they run. A case may be followed by modifiers of
/// [`Entry`].
macro_rules! cases {
    ($topic:literal: $($name:ident $(. $modifier:ident($($argument:expr),*))*),* $(,)?) => {
        pub(crate) const CASES: &[crate::case::Entry] = &[$(
            crate::case::Entry::new(concat!($topic, "::", stringify!($name)), $name)
                $(.$modifier($($argument),*))*
        ),*];
    };
}

mod accounting;
mod array_copies;
mod arrays;
mod batch_copies;
mod batch_layers;
mod capture_forks;
mod capture_rules;
mod captures;
mod context_events;
mod context_versions;
mod contexts;
mod copies;
mod copies2d;
mod copies3d;
mod corpus;
mod dead_handles;
mod destroyed_contexts;
mod device_values;
mod errors;
mod events;
mod fills;
mod fragmentation;
mod functions;
mod graph_launches;
mod graph_memory;
mod graph_objects;
mod graphs;
mod host_memory;
mod kernel_faults;
mod kernel_results;
mod kernels;
mod lasting;
mod launches;
mod libraries;
mod limits;
mod location_pool_memory;
mod location_pools;
mod managed;
mod managed_batches;
mod managed_locations;
mod memory;
mod module_images;
mod modules;
mod no_context;
mod older_versions;
mod order;
mod peers;
mod pointer_values;
mod pointers;
mod pool_release;
mod pools;
mod primary;
mod proc_address;
mod process;
mod promises;
mod ranges;
mod start;
mod sticky;
mod stream_attributes;
mod streams;
mod virtual_memory;
mod waits;

/// All cases, in the order in which they run.
pub(crate) fn all() -> Vec<Entry> {
    [
        start::CASES,
        proc_address::CASES,
        device_values::CASES,
        errors::CASES,
        limits::CASES,
        contexts::CASES,
        context_versions::CASES,
        context_events::CASES,
        destroyed_contexts::CASES,
        primary::CASES,
        older_versions::CASES,
        memory::CASES,
        host_memory::CASES,
        managed::CASES,
        ranges::CASES,
        managed_locations::CASES,
        managed_batches::CASES,
        pointers::CASES,
        peers::CASES,
        pointer_values::CASES,
        copies::CASES,
        copies2d::CASES,
        copies3d::CASES,
        batch_copies::CASES,
        batch_layers::CASES,
        arrays::CASES,
        array_copies::CASES,
        fills::CASES,
        no_context::CASES,
        pools::CASES,
        pool_release::CASES,
        location_pools::CASES,
        location_pool_memory::CASES,
        streams::CASES,
        stream_attributes::CASES,
        order::CASES,
        events::CASES,
        waits::CASES,
        virtual_memory::CASES,
        graphs::CASES,
        graph_launches::CASES,
        graph_memory::CASES,
        graph_objects::CASES,
        captures::CASES,
        capture_forks::CASES,
        capture_rules::CASES,
        promises::CASES,
        accounting::CASES,
        fragmentation::CASES,
        sticky::CASES,
        lasting::CASES,
        process::CASES,
        dead_handles::CASES,
        modules::CASES,
        functions::CASES,
        module_images::CASES,
        libraries::CASES,
        launches::CASES,
        kernels::CASES,
        kernel_results::CASES,
        corpus::CASES,
        kernel_faults::CASES,
    ]
    .concat()
}
