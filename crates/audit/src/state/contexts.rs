//! The contexts of the process, by number.
//!
//! A record has the number of the context that owns the resource. Handles are used again for later contexts, numbers are
//! not.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Mutex, MutexGuard};

use cuguard_registry::{Owner, ResourceKind, record_context_created, record_context_ended};
use cuguard_sys::{CUcontext, pointer_attribute};

use super::{Taken, begin, counted, insert, is_used, put_back, registry, take};
use crate::real::queries;

#[derive(Clone, Copy, Debug)]
struct Context {
    handle: usize,
    number: u32,
    /// How often it was created, attached or retained, less how often it was released.
    uses: u32,
    /// The device, where it is known.
    device: Option<i32>,
    /// The device, of a primary context.
    primary_of: Option<i32>,
}

struct Table {
    contexts: Vec<Context>,
    last_number: u32,
}

static TABLE: Mutex<Table> = Mutex::new(Table {
    contexts: Vec::new(),
    last_number: 0,
});

/// Changes whenever a handle gets another number.
static GENERATION: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The last context that was current on this thread: the generation, the handle, the owner.
    static LAST: Cell<(u64, usize, Owner)> = const { Cell::new((0, 0, Owner::context(0))) };
}

/// The device of the first context; none before.
static FIRST_DEVICE: AtomicI32 = AtomicI32::new(NO_DEVICE);

/// Neither a device nor the host.
const NO_DEVICE: i32 = i32::MIN;

/// Whether the process uses more than one device.
static SEVERAL: AtomicBool = AtomicBool::new(false);

/// The process uses a device: it has a context or a pool there.
pub(crate) fn note_device(device: i32) {
    // The host, where a pool can be, is no device.
    if device < 0 {
        return;
    }
    let first = FIRST_DEVICE.compare_exchange(NO_DEVICE, device, Relaxed, Relaxed);
    if first.is_err_and(|first| first != device) {
        SEVERAL.store(true, Relaxed);
    }
}

/// Every change under this lock leaves the table valid, so a poisoned lock is harmless.
fn lock() -> MutexGuard<'static, Table> {
    cuguard_sync::lock(&TABLE)
}

impl Table {
    fn find(&mut self, handle: usize) -> Option<&mut Context> {
        self.contexts.iter_mut().find(|own| own.handle == handle)
    }

    /// The context with this handle, which gets a number if it has none.
    fn find_or_add(&mut self, handle: usize) -> &mut Context {
        let known = self.contexts.iter().position(|own| own.handle == handle);
        let index = known.unwrap_or_else(|| {
            self.last_number += 1;
            self.contexts.push(Context {
                handle,
                number: self.last_number,
                uses: 0,
                device: None,
                primary_of: None,
            });
            self.contexts.len() - 1
        });
        &mut self.contexts[index]
    }

    fn primary(&mut self, device: i32) -> Option<&mut Context> {
        let mut contexts = self.contexts.iter_mut();
        contexts.find(|own| own.primary_of == Some(device))
    }

    /// Makes this context the primary one of a device. Another one that was has ended in a way that is not recorded.
    fn set_primary(&mut self, handle: usize, device: i32) {
        if let Some(before) = self.primary(device).filter(|own| own.handle != handle) {
            before.primary_of = None;
        }
        note_device(device);
        let context = self.find_or_add(handle);
        (context.device, context.primary_of) = (Some(device), Some(device));
    }

    /// Removes all handles of a context.
    fn remove(&mut self, number: u32) {
        self.contexts.retain(|own| own.number != number);
        GENERATION.fetch_add(1, Relaxed);
    }
}

/// The number of the context that is current on the calling thread; 0 if there is none.
pub(crate) fn current() -> u32 {
    current_owner().number()
}

/// The context that is current on the calling thread, and its device.
pub(crate) fn current_owner() -> Owner {
    let mut context = CUcontext::NULL;
    // SAFETY: the handle can be written to.
    let result = unsafe { queries::cuCtxGetCurrent(&mut context) };
    match result.is_success() && !context.is_null() {
        true => owner_of(context.0, true),
        false => Owner::default(),
    }
}

/// The number of a context.
pub(crate) fn number_of(handle: usize) -> u32 {
    owner_of(handle, false).number()
}

#[inline]
fn owner_of(handle: usize, is_current: bool) -> Owner {
    let generation = GENERATION.load(Relaxed);
    let (known_in, known, owner) = LAST.get();
    match (known_in, known) == (generation, handle) {
        true => owner,
        false => look_up(generation, handle, is_current),
    }
}

#[inline(never)]
fn look_up(generation: u64, handle: usize, is_current: bool) -> Owner {
    let Context { number, device, .. } = *lock().find_or_add(handle);
    let mut device = device;
    if device.is_none() && is_current {
        // It was created in a way that is not recorded.
        device = current_device();
        // Another thread may have destroyed it meanwhile.
        if let Some(own) = lock().find(handle) {
            own.device = device;
        }
        device.into_iter().for_each(note_device);
    }
    let owner = Owner::context(number).on(device.and_then(|device| u32::try_from(device).ok()));
    // The device may become known.
    if device.is_some() {
        LAST.set((generation, handle, owner));
    }
    owner
}

/// The device that has memory which no context owns, and which the calling thread has just allocated.
pub(crate) fn device_of_memory(address: u64) -> Option<u32> {
    match SEVERAL.load(Relaxed) {
        // A stream or a pool of another device may be the reason.
        true => u32::try_from(device_of_pointer(address)?).ok(),
        false => current_owner().device(),
    }
}

/// The same of memory that may be on a device on which the process has no context.
pub(crate) fn device_of_any_memory(address: u64) -> Option<u32> {
    match has_several_devices() {
        true => u32::try_from(device_of_pointer(address)?).ok(),
        false => device_of_memory(address),
    }
}

/// Whether the driver has more than one device.
fn has_several_devices() -> bool {
    /// How many; 0 before the driver was asked.
    static DEVICES: AtomicI32 = AtomicI32::new(0);
    let mut devices = DEVICES.load(Relaxed);
    if devices == 0 {
        // SAFETY: the number can be written to.
        let result = unsafe { queries::cuDeviceGetCount(&mut devices) };
        if result.is_success() {
            DEVICES.store(devices, Relaxed);
        }
    }
    devices > 1
}

/// The device that has the memory at an address. `None` also for memory that was freed meanwhile.
pub(crate) fn device_of_pointer(address: u64) -> Option<i32> {
    let mut device: i32 = 0;
    // SAFETY: the attribute has the size of a device; the driver accepts any address.
    let result = unsafe {
        queries::cuPointerGetAttribute(
            (&raw mut device).cast(),
            pointer_attribute::DEVICE_ORDINAL,
            address,
        )
    };
    result.is_success().then_some(device)
}

/// Another handle of a context: that of a green context, and the one made from it.
pub(crate) fn add_handle(handle: usize, of: usize) {
    let mut table = lock();
    let Context { number, device, .. } = *table.find_or_add(of);
    match table.find(handle) {
        Some(own) => (own.number, own.device) = (number, device),
        None => table.contexts.push(Context {
            handle,
            number,
            uses: 0,
            device,
            primary_of: None,
        }),
    }
    drop(table);
    GENERATION.fetch_add(1, Relaxed);
}

/// Records a context that was created, attached or retained. Without a device, it is the current one.
pub(crate) fn created(handle: usize, device: Option<i32>, is_primary: bool) {
    let device = device.or_else(current_device);
    device.into_iter().for_each(note_device);
    let mut table = lock();
    if let Some(device) = device.filter(|_| is_primary) {
        table.set_primary(handle, device);
    }
    let context = table.find_or_add(handle);
    context.uses += 1;
    context.device = device.or(context.device);
    let (is_first, number) = (context.uses == 1, context.number);
    drop(table);
    if is_first {
        begin();
        let device = device.and_then(|device| u32::try_from(device).ok());
        record_context_created(number, device.unwrap_or(0));
        insert(ResourceKind::Context, handle as u64, 0, 0, Owner::default());
    }
}

/// Notes a primary context that is used in a way that is not recorded.
pub(crate) fn note_primary(handle: usize, device: i32) {
    lock().set_primary(handle, device);
}

/// The device of the context that is current on the calling thread.
pub(crate) fn current_device() -> Option<i32> {
    let mut device = 0;
    // SAFETY: the device can be written to.
    let result = unsafe { queries::cuCtxGetDevice(&mut device) };
    result.is_success().then_some(device)
}

/// The numbers of the contexts that are known to be on a device.
pub(crate) fn on_device(device: i32) -> Vec<u32> {
    let table = lock();
    let contexts = table.contexts.iter();
    let there = contexts.filter(|own| own.device == Some(device));
    there.map(|own| own.number).collect()
}

/// The devices that the process uses.
pub(crate) fn devices() -> Vec<i32> {
    let contexts = lock().contexts.clone();
    let mut devices: Vec<i32> = contexts.iter().filter_map(|own| own.device).collect();
    devices.sort_unstable();
    devices.dedup();
    devices
}

/// A context that is about to be destroyed or released once. The record is removed with the last use.
#[derive(Debug)]
pub(crate) struct Ending {
    context: Context,
    record: Option<Taken>,
    /// Whether this was the last use.
    pub(crate) is_last: bool,
}

/// Before a context is destroyed: its handle may belong to another one at the moment that it is. `None` if it is not
/// known.
pub(crate) fn begin_destroy(handle: usize) -> Option<Ending> {
    let mut table = lock();
    let context = *table.find(handle)?;
    table.remove(context.number);
    drop(table);
    Some(Ending {
        context,
        record: take(&[ResourceKind::Context], handle as u64),
        is_last: true,
    })
}

/// Before one use of a context is released. With the last one, the handle may belong to another context.
pub(crate) fn begin_release(handle: usize) -> Option<Ending> {
    let mut table = lock();
    let context = table.find(handle)?;
    let before = *context;
    context.uses = context.uses.saturating_sub(1);
    let is_last = context.uses == 0;
    // A primary context keeps its number as long as other code of the process retains it.
    if is_last && before.primary_of.is_none() {
        table.remove(before.number);
    }
    drop(table);
    let record = match is_last {
        true => take(&[ResourceKind::Context], handle as u64),
        false => None,
    };
    Some(Ending {
        context: before,
        record,
        is_last,
    })
}

/// [`begin_release`] of a context that is not a primary one.
pub(crate) fn begin_detach(handle: usize) -> Option<Ending> {
    let primary_of = lock().find(handle)?.primary_of;
    match primary_of {
        Some(_) => None,
        None => begin_release(handle),
    }
}

/// [`begin_release`] of a device's primary context.
pub(crate) fn begin_release_primary(device: i32) -> Option<Ending> {
    let handle = lock().primary(device)?.handle;
    begin_release(handle)
}

impl Ending {
    /// The context was destroyed: what is alive in it ended with it.
    pub(crate) fn destroyed(self) {
        let mut table = lock();
        // Of a primary context; others are removed already.
        table.remove(self.context.number);
        drop(table);
        end_resources(self.context.number);
        // At exit it is the runtime that releases contexts.
        if !is_exiting() {
            record_context_ended(self.context.number);
        }
    }

    /// The driver refused.
    #[cold]
    pub(crate) fn failed(self) {
        let mut table = lock();
        match table.find(self.context.handle) {
            Some(own) if own.number == self.context.number => own.uses += 1,
            // Another thread asked for the context meanwhile, and it got a new number.
            Some(own) => *own = self.context,
            None => table.contexts.push(self.context),
        }
        drop(table);
        GENERATION.fetch_add(1, Relaxed);
        put_back(self.record);
    }
}

/// The last use of a device's primary context was released, in a way that is not recorded: what is alive in it ended with it.
pub(crate) fn primary_ended(device: i32) {
    let mut table = lock();
    let Some(context) = table.primary(device).copied() else {
        return;
    };
    table.remove(context.number);
    drop(table);
    if is_used() {
        let record = take(&[ResourceKind::Context], context.handle as u64);
        let is_last = true;
        Ending {
            context,
            record,
            is_last,
        }
        .destroyed();
    }
}

/// A device's primary context was reset: what is alive in it ended, and the context stays retained.
pub(crate) fn reset_primary(device: i32) {
    let number = lock().primary(device).map(|own| own.number);
    if let Some(number) = number {
        end_resources(number);
    }
}

/// Whether the process exits.
static EXITING: AtomicBool = AtomicBool::new(false);

/// Whether the process exits.
pub(crate) fn is_exiting() -> bool {
    EXITING.load(Acquire)
}

/// The process exits: what is destroyed from now on is not done by the program.
pub(crate) fn process_exits() {
    EXITING.store(true, Release);
}

/// What is alive in a context ended with it. While the process exits, it is the runtime that releases contexts, and the
/// program has not freed what was in them.
fn end_resources(number: u32) {
    if is_exiting() {
        return;
    }
    let imported = RefCell::new(Vec::new());
    registry().destroy_context(number, |key, _| {
        if key.kind == ResourceKind::Imported {
            imported.borrow_mut().push(key.address);
        }
        // What survives has no context.
        false
    });
    for address in imported.into_inner() {
        counted::forget(address);
    }
}
