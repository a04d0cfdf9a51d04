//! The recorded functions, one file for each family.
//!
//! Each calls the driver's function and returns its result unchanged. An allocation is recorded after the driver has
//! succeeded. A free erases the record before it calls the driver, because the driver may return the address to another
//! thread at that moment; if the free fails, the record is inserted again.
//!
//! A driver may call its own exported functions: such nested calls are not recorded.
//!
//! The driver's functions are `C-unwind`: cancelling a thread that waits for the device in such a function unwinds the
//! thread's stack.
//!
//! Must not know how a program reached these functions.

#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "unit tests do not export functions in front of the driver's"
    )
)]
#![allow(clippy::too_many_arguments, reason = "the signatures are the driver's")]

pub(crate) mod array;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod graph;
pub(crate) mod handle;
pub(crate) mod host;
pub(crate) mod imported;
pub(crate) mod init;
pub(crate) mod module;
pub(crate) mod part;
pub(crate) mod stream_ordered;
pub(crate) mod synchronize;
pub(crate) mod virtual_memory;

use std::ffi::{c_int, c_void};

use cuguard_registry::{Owner, ResourceKind};
use cuguard_sys::*;

use crate::state::{self, contexts};
use crate::{cached, cancel, lifecycle, process, search, shortage};

/// A call that a program makes.
#[derive(Debug)]
pub(crate) struct Call {
    function: &'static str,
    /// The program's state of cancellation.
    cancel: c_int,
}

impl Call {
    /// `None` for a call inside another one, and in a forked child, where the driver does not work.
    #[inline(always)]
    pub(crate) fn begin(function: &'static str, cancel: c_int) -> Option<Self> {
        if !lifecycle::used() {
            return None;
        }
        Self::begin_lookup(function, cancel)
    }

    /// [`begin`](Self::begin) in a process that uses the driver already.
    #[inline(always)]
    pub(crate) fn begin_if_used(function: &'static str, cancel: c_int) -> Option<Self> {
        if !lifecycle::is_recorded() {
            return None;
        }
        Self::begin_lookup(function, cancel)
    }

    /// [`begin`](Self::begin) of a call that records nothing, but decides what becomes of later records: it is noted in a process that
    /// does not use the driver in any other way, too.
    #[inline(always)]
    pub(crate) fn begin_noted(function: &'static str, cancel: c_int) -> Option<Self> {
        if lifecycle::is_forked() {
            return None;
        }
        Self::begin_lookup(function, cancel)
    }

    /// [`begin`](Self::begin) of a call that finds functions and does nothing else: a program that makes no other calls does
    /// not use the driver.
    #[inline(always)]
    pub(crate) fn begin_lookup(function: &'static str, cancel: c_int) -> Option<Self> {
        // Not made for a call inside another one: to drop it would end the outer one.
        if !lifecycle::call_begins() {
            return None;
        }
        // Here, in the frame of the function that the program has called.
        search::call_begins();
        Some(Self { function, cancel })
    }

    /// The function's exported name.
    pub(crate) fn name(&self) -> &'static str {
        self.function
    }

    /// Calls a function of the driver that waits, and creates nothing. The thread may be cancelled in it.
    #[inline]
    pub(crate) fn waiting(&self, wait: impl FnOnce() -> CUresult + Copy) -> CUresult {
        cancel::with(self.cancel, wait)
    }

    /// After a call that allocates or creates. `out` is where the driver writes the address or handle.
    ///
    /// # Safety
    ///
    /// `out` is null or what the driver wrote to.
    #[inline]
    pub(crate) unsafe fn created<T: Address>(
        &self,
        result: CUresult,
        out: *const T,
        new: New,
    ) -> CUresult {
        if !result.is_success() {
            return self.refused(result, &new);
        }
        if out.is_null() {
            return result;
        }
        // SAFETY: as the caller guarantees.
        let address = unsafe { out.read_unaligned() }.address();
        if address != 0 {
            state::insert(new.kind, address, new.bytes, new.stream, new.owner(address));
            shortage::created(self.name(), new.kind);
        }
        result
    }

    /// The call's result, which the program gets.
    #[inline]
    pub(crate) fn end(self, result: CUresult) -> CUresult {
        match result.is_success() {
            true => cached::refresh(),
            false => process::failed(self.name(), result.0),
        }
        result
    }

    /// After a failed call.
    #[cold]
    pub(crate) fn refused(&self, result: CUresult, new: &New) -> CUresult {
        if result == CUresult::OUT_OF_MEMORY {
            shortage::refused(self.name(), Some(new.kind), new.bytes, new.device);
        }
        result
    }

    /// A call that frees what is at an address and of one of these kinds.
    #[inline]
    pub(crate) fn freed(
        &self,
        kinds: &[ResourceKind],
        address: impl Address,
        free: impl FnOnce() -> CUresult,
    ) -> CUresult {
        let taken = state::take(kinds, address.address());
        let result = free();
        if !is_freed(result) {
            state::put_back(taken);
        }
        result
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // The thread may wait here for the end of the process.
        lifecycle::call_ends();
        search::call_ends();
    }
}

/// Whether a free that returned this is done. A driver that is shutting down frees everything.
#[inline]
pub(crate) fn is_freed(result: CUresult) -> bool {
    result.is_success() || result == CUresult::DEINITIALIZED
}

/// `CU_DEVICE_CPU`: the host in place of a device.
const DEVICE_CPU: CUdevice = -1;

/// The device at a location, `CU_DEVICE_CPU` for the host; `None` for a location that is neither.
pub(crate) fn device_at(location: CUmemLocation) -> Option<CUdevice> {
    match location.type_ {
        mem_location_type::DEVICE => Some(location.id),
        mem_location_type::HOST
        | mem_location_type::HOST_NUMA
        | mem_location_type::HOST_NUMA_CURRENT => Some(DEVICE_CPU),
        _ => None,
    }
}

/// What a call creates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct New {
    kind: ResourceKind,
    bytes: u64,
    stream: u64,
    /// Whether the current context owns it, and frees it when it is destroyed.
    is_owned: bool,
    /// The device, if the call names one. Otherwise it is the current one.
    device: Option<CUdevice>,
    /// Where memory is that no context owns.
    place: Place,
}

/// Where memory is that no context owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the device of the stream.
    Stream,
    /// Wherever a pool is that is not known: the default one of a device, or one that was imported.
    Unknown,
    /// On this device.
    Device(CUdevice),
    /// On no device.
    Host,
}

impl New {
    /// Something that its context owns.
    pub(crate) const fn in_context(kind: ResourceKind, bytes: u64) -> Self {
        Self {
            kind,
            bytes,
            stream: 0,
            is_owned: true,
            device: None,
            place: Place::Stream,
        }
    }

    /// Something that survives contexts.
    pub(crate) const fn in_process(kind: ResourceKind, bytes: u64) -> Self {
        Self {
            kind,
            bytes,
            stream: 0,
            is_owned: false,
            device: None,
            place: Place::Stream,
        }
    }

    /// Who owns it, now that it is there.
    #[inline]
    fn owner(&self, address: u64) -> Owner {
        match self.is_owned {
            true => contexts::current_owner(),
            false if self.kind.is_device_memory() => {
                let device = match self.place {
                    Place::Stream => contexts::device_of_memory(address),
                    Place::Unknown => contexts::device_of_any_memory(address),
                    Place::Device(device) => u32::try_from(device).ok(),
                    Place::Host => None,
                };
                Owner::default().on(device)
            }
            false => Owner::default(),
        }
    }

    /// On the device that the call names, if it names one.
    pub(crate) fn on(self, device: Option<CUdevice>) -> Self {
        Self {
            // The host is no device.
            device: device.filter(|device| *device != DEVICE_CPU),
            ..self
        }
    }
}

/// An address or a handle, as a number.
pub(crate) trait Address: Copy {
    fn address(self) -> u64;
}

impl Address for u64 {
    fn address(self) -> u64 {
        self
    }
}

impl Address for u32 {
    fn address(self) -> u64 {
        self.into()
    }
}

impl Address for *mut c_void {
    fn address(self) -> u64 {
        self.addr() as u64
    }
}

macro_rules! handles {
    ($($name:ident)*) => {$(
        impl Address for $name {
            fn address(self) -> u64 {
                self.0 as u64
            }
        }
    )*};
}

handles! {
    CUarray CUevent CUexternalMemory CUfunction CUgraph CUgraphExec CUkernel CUlibrary CUmemoryPool CUmipmappedArray CUmodule
    CUstream
}

#[cfg(test)]
mod tests {
    use super::{Call, device_at};
    use cuguard_sys::{CUmemLocation, mem_location_type};

    #[test]
    fn memory_of_the_host_is_on_no_device() {
        let at = |type_, id| device_at(CUmemLocation { type_, id });
        assert_eq!(at(mem_location_type::DEVICE, 3), Some(3));
        for host in [
            mem_location_type::HOST,
            mem_location_type::HOST_NUMA,
            mem_location_type::HOST_NUMA_CURRENT,
        ] {
            assert_eq!(at(host, 0), Some(-1));
        }
        assert_eq!(at(mem_location_type::INVALID, 0), None);
    }

    #[test]
    fn calls_inside_a_call_do_not_end_it() {
        let outer = Call::begin_lookup("outer", 0);
        assert!(outer.is_some());
        for _ in 0..3 {
            assert!(Call::begin_lookup("inner", 0).is_none());
        }
        drop(outer);
        assert!(Call::begin_lookup("next", 0).is_some());
    }
}
