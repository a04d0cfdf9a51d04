//! What is known when memory runs out, put together for the error.

use std::collections::BTreeMap;
use std::sync::Arc;

use cuguard_driver::api;
use cuguard_driver::sys::CUresult;

use super::ladder::{Refused, Request};
use super::{contexts_on, frees, pools, probe, processes};
use crate::custody::Custody;
use crate::error::Error;
use crate::oom::{
    Asked, Attempt, Held, Holder, OtherContext, OutOfMemory, PageUse, Processes, Settings,
};
use crate::registry::{self, Kind, Occasion, Pages, Registry, Shared};

/// How many places are kept in an error, by bytes and by pages.
const PLACES: usize = 32;

/// What is known without asking anybody.
fn asked(
    custody: &Custody,
    request: &Request,
    refused: &Refused,
    attempts: Vec<Attempt>,
) -> OutOfMemory {
    let (function, code, limit) = match refused {
        Refused::Memory { function, code } => (Some(*function), *code, None),
        Refused::Limit { held } => (None, CUresult::OUT_OF_MEMORY, Some(*held)),
    };
    OutOfMemory {
        asked: Asked {
            operation: request.operation,
            bytes: (request.bytes != 0).then_some(request.bytes as u64),
            kind: request.kind,
            site: Some(request.site.into()),
            thread: std::thread::current().name().map(str::to_owned),
            function,
            code: code.0,
            code_name: code.name().unwrap_or_default(),
        },
        about: custody.about(Occasion::Asked),
        limit: custody.budget.limit(limit),
        attempts,
        ..OutOfMemory::default()
    }
}

/// The error for one that tries how much there is.
pub(super) fn bare(custody: &Custody, request: &Request, refused: &Refused) -> Error {
    Error::OutOfMemory(Box::new(asked(custody, request, refused, Vec::new())))
}

/// The error for what was refused in spite of all.
pub(super) fn refused(
    custody: &Custody,
    request: &Request,
    refused: &Refused,
    attempts: Vec<Attempt>,
) -> Error {
    let mut why = asked(custody, request, refused, attempts);
    if let Some((free, total)) = memory(custody) {
        (why.free, why.total) = (Some(free), Some(total));
    }
    let settings = &custody.shortage;
    (why.busy_streams, why.pending_bytes) = frees::pending(custody.device);
    why.pools = pools::pools(custody);
    why.pools.retain(|pool| pool.reserved != 0);
    let neighbours = neighbours(custody.device, Some(custody));
    why.contexts = other_contexts(custody.device, Some(custody), &neighbours);
    // What the budget refused is nobody else's doing.
    why.processes = match settings.ask_processes && matches!(refused, Refused::Memory { .. }) {
        true => processes::processes_seen_from(custody),
        false => Processes::Unknown("not asked for".to_owned()),
    };
    let shared = neighbours.get(&custody.number).copied();
    holdings(&custody.registry, shared, &mut why);
    why.settings.callbacks = custody.callbacks.count();
    why.settings.devices = match custody.pass_in() {
        Some(_inside) => devices(),
        None => 0,
    };
    // Last, as it makes pools give back what they hoard, and the rest tells how it was before.
    if settings.probe_largest {
        why.largest = probe::largest_block(custody, request.operation).ok();
    }
    Error::OutOfMemory(Box::new(why))
}

/// The error for a context that could not be made for want of memory.
pub(crate) fn context_refused(
    operation: &'static str,
    device: u32,
    device_name: &str,
    function: &'static str,
    code: CUresult,
) -> Error {
    let mut why = OutOfMemory {
        asked: Asked {
            operation,
            thread: std::thread::current().name().map(str::to_owned),
            function: Some(function),
            code: code.0,
            code_name: code.name().unwrap_or_default(),
            ..Asked::default()
        },
        contexts: other_contexts(device, None, &neighbours(device, None)),
        processes: processes::processes(device),
        ..OutOfMemory::default()
    };
    why.about.device = device;
    why.about.device_name = device_name.to_owned();
    why.free = processes::free(device);
    why.settings.devices = devices();
    let mut total = 0;
    // SAFETY: the variable can be written to, and the device exists.
    if unsafe { api::cuDeviceTotalMem_v2(&mut total, device as i32) }.is_success() {
        why.total = Some(total as u64);
    }
    Error::OutOfMemory(Box::new(why))
}

/// The caller is inside a gate: at the end of the process nobody calls the driver.
fn devices() -> u32 {
    let mut count = 0;
    // SAFETY: the variable can be written to.
    let code = unsafe { api::cuDeviceGetCount(&mut count) };
    if code.is_success() {
        count.max(0) as u32
    } else {
        0
    }
}

/// Free and total, if the driver tells.
pub(super) fn memory(custody: &Custody) -> Option<(u64, u64)> {
    let _entered = custody.enter("out of memory").ok()?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: both variables can be written to.
    let code = unsafe { api::cuMemGetInfo_v2(&mut free, &mut total) };
    code.is_success().then_some((free as u64, total as u64))
}

/// What contexts have in pages with others, by their numbers. Pages with blocks of the one that asks are
/// its own.
fn neighbours(device: u32, first: Option<&Custody>) -> BTreeMap<u64, Shared> {
    let mut contexts = contexts_on(device);
    contexts.sort_by_key(|one| {
        (
            first.is_none_or(|first| first.number != one.number),
            one.number,
        )
    });
    // Those with nothing share nothing. To look at every block takes a while: mostly there is no need.
    contexts.retain(|one| one.registry.totals(Kind::Device).bytes != 0);
    let holders: Vec<_> = contexts.iter().map(|one| one.context).collect();
    contexts.retain(|one| holders.iter().filter(|at| **at == one.context).count() > 1);
    let registries: Vec<_> = contexts.iter().map(|one| &one.registry).collect();
    let numbers = contexts.iter().map(|one| one.number);
    numbers.zip(registry::shared(&registries)).collect()
}

fn other_contexts(
    device: u32,
    but: Option<&Custody>,
    neighbours: &BTreeMap<u64, Shared>,
) -> Vec<OtherContext> {
    let mut contexts = contexts_on(device);
    contexts.retain(|custody| !but.is_some_and(|but| std::ptr::eq(but, &**custody)));
    contexts.sort_by_key(|custody| custody.number);
    let of = |custody: &Arc<Custody>| {
        let shared = neighbours.get(&custody.number).copied();
        other_context(custody.number, &custody.registry, shared)
    };
    contexts.iter().map(of).collect()
}

fn other_context(number: u64, registry: &Registry, shared: Option<Shared>) -> OtherContext {
    let mut outline = registry.outline();
    if let (Some(pages), Some(shared)) = (&mut outline.pages, shared) {
        pages.share(shared);
    }
    let held = |kind: Kind| {
        let mut live = registry.totals(kind).live();
        live -= outline.escaped[kind.index()];
        live
    };
    let (plain, pooled) = (held(Kind::Device), held(Kind::StreamOrdered));
    let bytes = plain.bytes.saturating_add(pooled.bytes);
    let mut context = OtherContext::new(number, bytes);
    (context.pooled, context.pooled_blocks) = (pooled.bytes, pooled.count);
    context.managed = held(Kind::Managed).bytes;
    let taken = |pages: Pages| page_use(pages).taken().saturating_add(pages.away);
    context.taken = outline.pages.map(taken);
    let given_away = |kind: Kind| outline.escaped[kind.index()].bytes;
    context.given_away = given_away(Kind::Device);
    context.pooled_given_away = given_away(Kind::StreamOrdered);
    context
}

fn page_use(pages: Pages) -> PageUse {
    let mut used = PageUse::new(
        (pages.large_bytes, pages.large_pages),
        (pages.small_bytes, pages.small_pages),
    );
    used.guests = pages.guests;
    used
}

/// What the context's guards hold.
fn holdings(registry: &Registry, shared: Option<Shared>, why: &mut OutOfMemory) {
    let mut holdings = registry.holdings();
    if let (Some(pages), Some(shared)) = (&mut holdings.pages, shared) {
        pages.share(shared);
    }
    let kinds = Kind::ALL.iter().filter(|kind| kind.is_memory());
    for kind in kinds {
        let given_away = holdings.escaped[kind.index()];
        let mut live = registry.totals(*kind).live();
        live -= given_away;
        for (list, amount) in [(&mut why.held, live), (&mut why.given_away, given_away)] {
            if amount.count != 0 {
                list.push(Held::new(*kind, amount.count, amount.bytes));
            }
        }
    }
    why.pages = holdings.pages.map(page_use);
    why.settings = Settings {
        level: registry.level(),
        sample: registry.sample(),
        has_checkpoint: holdings.has_baseline,
        ..Settings::default()
    };
    let mut places = holdings.places;
    places.retain(|place| place.group.kind.is_memory());
    // The largest, and of the rest those that keep most pages.
    let mut rest = places.split_off(places.len().min(PLACES));
    rest.retain(|place| place.small_pages != 0);
    rest.sort_by_key(|place| std::cmp::Reverse(place.small_pages));
    rest.truncate(PLACES / 2);
    why.holders = places
        .into_iter()
        .chain(rest)
        .map(|place| {
            let mut holder = Holder::new(place.group);
            holder.growth = place.growth;
            holder.quarters = place.quarters;
            holder.small_pages = place.small_pages;
            holder
        })
        .collect();
}
