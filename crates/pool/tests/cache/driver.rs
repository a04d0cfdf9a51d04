//! A driver without a device: it counts physical memory, and knows what is mapped where.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use cuguard_pool::Driver;

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// A device with some memory. Clones are the same device.
#[derive(Clone, Debug)]
pub struct FakeDriver {
    capacity: u64,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    held: u64,
    mapping_calls: u64,
    next_handle: u64,
    next_address: u64,
    handles: BTreeMap<u64, u64>,
    /// By address: size and handle.
    mapped: BTreeMap<u64, (u64, u64)>,
}

impl FakeDriver {
    /// A device with this much memory.
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity,
            state: Arc::default(),
        }
    }

    /// Physical memory that exists, in bytes, and the number of calls that mapped or unmapped some.
    pub fn usage(&self) -> (u64, u64) {
        let state = self.state.lock().unwrap();
        (state.held, state.mapping_calls)
    }
}

impl Driver for FakeDriver {
    type Error = OutOfMemory;
    type Stream = u64;
    type Point = ();

    fn stream_id(stream: &u64) -> u64 {
        *stream
    }

    fn is_out_of_memory(_: &OutOfMemory) -> bool {
        true
    }

    fn reserve(&self, bytes: u64) -> Result<u64, OutOfMemory> {
        let mut state = self.state.lock().unwrap();
        state.next_address += 1 << 40;
        let address = state.next_address;
        state.next_address += bytes;
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<(), OutOfMemory> {
        let state = self.state.lock().unwrap();
        assert_eq!(state.mapped.range(address..address + bytes).count(), 0);
        Ok(())
    }

    fn create(&self, bytes: u64) -> Result<u64, OutOfMemory> {
        let mut state = self.state.lock().unwrap();
        if state.held + bytes > self.capacity {
            return Err(OutOfMemory);
        }
        state.held += bytes;
        state.next_handle += 1;
        let handle = state.next_handle;
        state.handles.insert(handle, bytes);
        Ok(handle)
    }

    fn release(&self, handle: u64) -> Result<(), OutOfMemory> {
        let mut state = self.state.lock().unwrap();
        let bytes = state.handles.remove(&handle).expect("a handle that exists");
        let is_it = |mapping: &(u64, u64)| mapping.1 == handle;
        assert!(!state.mapped.values().any(is_it), "released while mapped");
        state.held -= bytes;
        Ok(())
    }

    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), OutOfMemory> {
        let mut state = self.state.lock().unwrap();
        assert_eq!(state.handles.get(&handle), Some(&bytes));
        assert_eq!(state.mapped.range(address..address + bytes).count(), 0);
        state.mapping_calls += 1;
        state.mapped.insert(address, (bytes, handle));
        Ok(())
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), OutOfMemory> {
        let mut state = self.state.lock().unwrap();
        let inside: Vec<u64> = state
            .mapped
            .range(address..address + bytes)
            .map(|(at, _)| *at)
            .collect();
        state.mapping_calls += 1;
        assert!(!inside.is_empty(), "nothing is mapped at {address:#x}");
        for at in inside {
            state.mapped.remove(&at);
        }
        Ok(())
    }

    fn set_access(&self, _: u64, _: u64) -> Result<(), OutOfMemory> {
        Ok(())
    }

    fn copy(&self, _: u64, _: u64, _: u64) -> Result<(), OutOfMemory> {
        Ok(())
    }

    fn wait_for_copies(&self) -> Result<(), OutOfMemory> {
        Ok(())
    }

    fn record(&self, _: &u64) -> Result<(), OutOfMemory> {
        Ok(())
    }

    fn is_complete(&self, (): &()) -> Result<bool, OutOfMemory> {
        Ok(true)
    }
}
