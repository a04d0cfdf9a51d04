//! The tests of this crate. Each module runs in a process of its own.

cuguard_testing::run_modules_apart!(
    "every_fault",
    "teardown_faults",
    "thread_stress",
    "deferred"
);

mod bad_input;
mod bad_settings;
mod binding;
mod broken_device;
mod callbacks;
mod capture;
mod captures_of_two_guards;
mod chunked;
mod chunked_shortage;
mod current;
mod deferred;
mod device_heap;
mod devices;
mod driver_interface;
mod driver_memory;
mod events;
mod every_fault;
mod exit;
mod exit_waits;
mod graphs;
mod guards;
mod half_way;
mod host_calls;
mod host_functions;
mod host_memory;
mod interleavings;
mod interop;
mod last_moments;
mod late_guards;
mod launches;
mod layers;
mod leak_report;
mod leak_settings;
mod lifetime;
mod live;
mod metrics;
mod migration_tables;
mod modules;
mod oom;
mod oom_examples;
mod oom_real;
mod outlived;
mod over_streams;
mod owned_once;
mod peers;
mod pending_frees;
mod pitched;
mod pool;
mod pool_close;
mod pool_compaction;
mod pool_ends;
mod pool_order;
mod pool_processes;
mod pool_recovery;
mod pool_report;
mod ported;
mod recording;
mod refusals;
mod registered_after_close;
mod report_frames;
mod scope;
mod scope_faults;
mod scope_waits;
mod scratch;
mod send_sync;
mod shared_pages;
mod shortage;
mod shortage_handles;
mod stderr_lock;
mod streams;
mod support;
mod teardown;
mod teardown_faults;
mod test_assertions;
mod thread_stress;
mod typed_kernels;
mod views;
