//! The facts for the out-of-memory diagnosis.

use std::collections::BTreeMap;
use std::sync::Arc;

use cuguard_driver::result::{CallError, device};
use cuguard_driver::sys::CUresult;

use super::{compaction, frees, pools, probe, processes};
use crate::core::open_contexts::on_device;
use crate::core::{ContextState, Refused, Request, ended};
use crate::error::Error;
use cuguard_registry::{
    self as registry, PageUse, Registry, ResourceKind, SharedPages, SnapshotReason, Trace,
    record_out_of_memory,
};
use cuguard_report::oom::{
    FailedRequest, KindUsage, Limit, OtherContext, OutOfMemory, Processes, RecoveryResult, Settings,
};

/// How many call sites an error has, by bytes and by pages.
const MAX_SITES: usize = 32;

/// What is known without a driver call.
fn describe(
    state: &ContextState,
    request: &Request,
    refused: &Refused,
    results: Vec<RecoveryResult>,
) -> OutOfMemory {
    let limit = |held| state.budget.limit(held);
    let (function, code, limit) = match *refused {
        Refused::Memory(error) => (Some(error.function), error.code, limit(None)),
        Refused::NotLaunched => (None, CUresult::OUT_OF_MEMORY, limit(None)),
        Refused::Limit { held } => (None, CUresult::OUT_OF_MEMORY, limit(Some(held))),
        Refused::PoolLimit { held, limit } => {
            let limit = Limit {
                bytes: limit,
                held,
                refused: true,
                of_pool: true,
            };
            (None, CUresult::OUT_OF_MEMORY, Some(limit))
        }
    };
    OutOfMemory {
        request: FailedRequest {
            operation: request.operation,
            bytes: (request.bytes != 0).then_some(request.bytes as u64),
            kind: request.kind,
            site: Some(request.site.into()),
            stack: &[],
            thread: std::thread::current().name().map(str::to_owned),
            function,
            code: code.0,
            code_name: code.name().unwrap_or_default(),
        },
        info: state.info(SnapshotReason::Requested),
        limit,
        recovery: results,
        ..OutOfMemory::default()
    }
}

/// The error of an allocation without recovery, whose caller tries less.
pub(super) fn brief_error(state: &ContextState, request: &Request, refused: &Refused) -> Error {
    Error::OutOfMemory(Box::new(describe(state, request, refused, Vec::new())))
}

/// The error of an allocation that fails after all recovery steps.
pub(super) fn error(
    state: &ContextState,
    request: &Request,
    refused: &Refused,
    results: Vec<RecoveryResult>,
) -> Error {
    let trace = || Trace::here(Some(request.site));
    let of_host = request
        .kind
        .is_some_and(|kind| kind.is_memory() && !kind.is_device_memory());
    let device = (!of_host).then_some(state.device);
    ended::REFUSALS.count(device, request.bytes as u64);
    let recorded = record_out_of_memory(request.bytes as u64, trace, state.recorded_number());
    let mut why = describe(state, request, refused, results);
    if let Some((free, total)) = probe::memory(state) {
        (why.free, why.total) = (Some(free), Some(total));
    }
    let settings = &state.oom_policy;
    (why.busy_streams, why.pending_bytes) = frees::pending(state.device);
    why.pools = pools::pools(state);
    why.pools.extend(compaction::describe(state));
    why.pools.retain(|pool| pool.reserved != 0);
    why.graphs = pools::graphs(state);
    let neighbours = shared_pages(state.device, Some(state));
    why.contexts = other_contexts(state.device, Some(state), &neighbours);
    let is_limit = matches!(refused, Refused::Limit { .. } | Refused::PoolLimit { .. });
    // Other processes do not matter where the context's own limit is exceeded.
    why.processes = match settings.ask_processes && !is_limit {
        true => processes::processes_of(state),
        false => Processes::Unknown("not queried".to_owned()),
    };
    let shared = neighbours.get(&state.number).copied();
    holdings(&state.registry, shared, &mut why);
    why.settings.callbacks = state.callbacks.count();
    why.settings.devices = match state.try_enter() {
        Some(_inside) => device::count().unwrap_or(0),
        None => 0,
    };
    // Last, because it makes pools return memory, and the rest describes the state before that.
    if settings.probe_largest {
        why.largest = probe::largest_block(state, request.operation).ok();
    }
    recorded.diagnose(|| why.to_text());
    Error::OutOfMemory(Box::new(why))
}

/// The error of an allocation that is not attempted again.
pub(crate) fn diagnose(state: &ContextState, request: &Request, refused: CallError) -> Error {
    error(state, request, &Refused::Memory(refused), Vec::new())
}

/// The error of a context that cannot be created for lack of memory.
pub(crate) fn context_refused(
    operation: &'static str,
    device: u32,
    device_name: &str,
    CallError { function, code }: CallError,
) -> Error {
    ended::REFUSALS.count(Some(device), 0);
    let recorded = record_out_of_memory(0, || Trace::here(None), 0);
    let mut why = OutOfMemory {
        request: FailedRequest {
            operation,
            thread: std::thread::current().name().map(str::to_owned),
            function: Some(function),
            code: code.0,
            code_name: code.name().unwrap_or_default(),
            ..FailedRequest::default()
        },
        contexts: other_contexts(device, None, &shared_pages(device, None)),
        processes: processes::processes(device),
        ..OutOfMemory::default()
    };
    why.info.device = device;
    why.info.device_name = device_name.to_owned();
    why.free = processes::free(device);
    why.settings.devices = device::count().unwrap_or(0);
    why.total = device::total_mem(device as i32)
        .ok()
        .map(|total| total as u64);
    recorded.diagnose(|| why.to_text());
    Error::OutOfMemory(Box::new(why))
}

/// The pages that several contexts share, by context number. A page with blocks of `first` counts as its own.
fn shared_pages(device: u32, first: Option<&ContextState>) -> BTreeMap<u64, SharedPages> {
    let mut contexts = on_device(device);
    contexts.sort_by_key(|one| {
        (
            first.is_none_or(|first| first.number != one.number),
            one.number,
        )
    });
    // To look at every block is slow, so only contexts that can share pages are considered: those with memory in a
    // driver context that several `Context`s use.
    contexts.retain(|one| one.registry.totals(ResourceKind::Device).bytes != 0);
    let drivers: Vec<_> = contexts.iter().map(|one| one.context).collect();
    contexts.retain(|one| drivers.iter().filter(|at| **at == one.context).count() > 1);
    let registries: Vec<_> = contexts.iter().map(|one| &one.registry).collect();
    let numbers = contexts.iter().map(|one| one.number);
    numbers.zip(registry::shared_pages(&registries)).collect()
}

fn other_contexts(
    device: u32,
    but: Option<&ContextState>,
    neighbours: &BTreeMap<u64, SharedPages>,
) -> Vec<OtherContext> {
    let mut contexts = on_device(device);
    contexts.retain(|state| !but.is_some_and(|but| std::ptr::eq(but, &**state)));
    contexts.sort_by_key(|state| state.number);
    let of = |state: &Arc<ContextState>| {
        let shared = neighbours.get(&state.number).copied();
        other_context(state.number, &state.registry, shared)
    };
    contexts.iter().map(of).collect()
}

fn other_context(number: u64, registry: &Registry, shared: Option<SharedPages>) -> OtherContext {
    let mut outline = registry.memory_usage_by_kind();
    if let (Some(pages), Some(shared)) = (&mut outline.pages, shared) {
        pages.share(shared);
    }
    let held = |kind: ResourceKind| {
        let mut live = registry.totals(kind).live();
        live -= outline.escaped[kind.index()];
        live
    };
    let (plain, mut pooled) = (
        held(ResourceKind::Device),
        held(ResourceKind::StreamOrdered),
    );
    pooled += held(ResourceKind::Pooled);
    let taken = |pages: PageUse| pages.taken().saturating_add(pages.elsewhere_bytes);
    let escaped = |kind: ResourceKind| outline.escaped[kind.index()].bytes;
    OtherContext {
        number,
        bytes: plain.bytes.saturating_add(pooled.bytes),
        pooled: pooled.bytes,
        pooled_blocks: pooled.count,
        taken: outline.pages.map(taken),
        managed: held(ResourceKind::Managed).bytes,
        escaped: escaped(ResourceKind::Device),
        pooled_escaped: escaped(ResourceKind::StreamOrdered)
            .saturating_add(escaped(ResourceKind::Pooled)),
    }
}

/// What the guards of the context hold.
fn holdings(registry: &Registry, shared: Option<SharedPages>, why: &mut OutOfMemory) {
    let mut holdings = registry.memory_usage();
    if let (Some(pages), Some(shared)) = (&mut holdings.pages, shared) {
        pages.share(shared);
    }
    for kind in ResourceKind::ALL
        .iter()
        .copied()
        .filter(|kind| kind.is_memory())
    {
        let escaped = holdings.escaped[kind.index()];
        let mut live = registry.totals(kind).live();
        live -= escaped;
        for (list, amount) in [(&mut why.usage, live), (&mut why.escaped, escaped)] {
            if amount.count != 0 {
                list.push(KindUsage { kind, amount });
            }
        }
    }
    why.pages = holdings.pages;
    why.settings = Settings {
        level: registry.level(),
        sample: registry.sample(),
        has_baseline: holdings.has_baseline,
        ..Settings::default()
    };
    let mut sites = holdings.sites;
    sites.retain(|site| site.group.kind.is_memory());
    // The largest, and of the rest those that occupy most pages.
    let mut rest = sites.split_off(sites.len().min(MAX_SITES));
    rest.retain(|site| site.small_pages != 0);
    rest.sort_by_key(|site| std::cmp::Reverse(site.small_pages));
    rest.truncate(MAX_SITES / 2);
    sites.append(&mut rest);
    why.call_sites = sites;
}
