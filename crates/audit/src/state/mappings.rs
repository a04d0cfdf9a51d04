//! Virtual memory: physical memory, its handles and where it is mapped.
//!
//! Physical memory is alive while it has a handle that was not released, or is mapped. Its record has the handle as its
//! address, and, when only a mapping is left, the address of the mapping.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use cuguard_registry::{Owner, ResourceKind};

use super::{Taken, forget, insert, move_record, put_back, take};

/// The number of an allocation of physical memory. Handles are used again, numbers are not.
type Number = u64;

#[derive(Debug, Default)]
struct Physical {
    /// The handle that its record has, while there is one.
    handle: u64,
    /// How many handles were not released: the first, and those of `cuMemRetainAllocationHandle`.
    handles: u32,
    /// Their distinct values.
    values: Vec<u64>,
    /// Where it is mapped.
    mapped: Vec<u64>,
    /// The device that has it, `CU_DEVICE_CPU` for memory of the host; `None` where that is not known.
    device: Option<i32>,
}

#[derive(Debug, Default)]
struct Table {
    physical: HashMap<Number, Physical>,
    by_handle: HashMap<u64, Number>,
    /// The mappings: the first address, the size, what is mapped.
    mappings: BTreeMap<u64, (u64, Number)>,
    last_number: Number,
}

static TABLE: Mutex<Option<Table>> = Mutex::new(None);

/// Runs `change` with the table. It is short, and calls no driver.
fn with<T>(change: impl FnOnce(&mut Table) -> T) -> T {
    let mut table: MutexGuard<'_, Option<Table>> = cuguard_sync::lock(&TABLE);
    change(table.get_or_insert_default())
}

impl Table {
    fn add(&mut self, handle: u64, device: Option<i32>) {
        self.last_number += 1;
        let physical = Physical {
            handle,
            handles: 1,
            values: vec![handle],
            mapped: Vec::new(),
            device,
        };
        self.physical.insert(self.last_number, physical);
        self.by_handle.insert(handle, self.last_number);
    }

    /// What is mapped at an address.
    fn at(&self, address: u64) -> Option<Number> {
        let (start, (size, number)) = self.mappings.range(..=address).next_back()?;
        (address - start < *size).then_some(*number)
    }
}

/// Records physical memory that was created or imported. `device` has it, where that is known.
pub(crate) fn created(handle: u64, bytes: u64, device: Option<i32>) {
    with(|table| table.add(handle, device));
    let owner = Owner::default().on(device.and_then(|device| u32::try_from(device).ok()));
    insert(ResourceKind::Physical, handle, bytes, 0, owner);
}

/// Records one more handle of what is mapped at an address.
pub(crate) fn retained(handle: u64, address: u64) {
    let known = with(|table| {
        let number = table.at(address)?;
        table.by_handle.insert(handle, number);
        let physical = table.physical.get_mut(&number)?;
        physical.handles += 1;
        let is_first = physical.handles == 1;
        if is_first {
            physical.handle = handle;
            physical.values.clear();
        }
        if !physical.values.contains(&handle) {
            physical.values.push(handle);
        }
        Some((
            is_first,
            physical.mapped.first().copied().unwrap_or_default(),
        ))
    });
    match known {
        // Mapped before this library was there.
        None => created(handle, 0, None),
        Some((true, mapped)) => move_record(
            (ResourceKind::Mapped, mapped),
            (ResourceKind::Physical, handle),
        ),
        Some((false, _)) => {}
    }
}

/// Records a mapping.
pub(crate) fn mapped(address: u64, size: u64, handle: u64) {
    with(|table| {
        if let Some(&number) = table.by_handle.get(&handle)
            && let Some(physical) = table.physical.get_mut(&number)
        {
            physical.mapped.push(address);
            table.mappings.insert(address, (size, number));
        }
    });
}

/// A handle that is about to be released.
#[derive(Debug)]
pub(crate) struct Releasing {
    number: Number,
    taken: Option<Taken>,
    /// The last handle of physical memory that stays mapped there.
    mapped: Option<u64>,
    /// How many handles there were. With the last one, the driver may use the number for other memory.
    handles: u32,
}

/// Before a handle is released. `None` for an unknown one.
pub(crate) fn begin_release(handle: u64) -> Option<Releasing> {
    let mut releasing = with(|table| {
        let number = *table.by_handle.get(&handle)?;
        let physical = table.physical.get_mut(&number)?;
        let handles = physical.handles;
        physical.handles = handles.saturating_sub(1);
        if handles <= 1 {
            for value in &physical.values {
                table.by_handle.remove(value);
            }
        }
        Some(Releasing {
            number,
            taken: None,
            mapped: physical.mapped.first().copied(),
            handles,
        })
    })?;
    if releasing.handles <= 1 {
        let own = with(|table| table.physical.get(&releasing.number).map(|own| own.handle));
        let own = own.unwrap_or(handle);
        match releasing.mapped {
            Some(address) => move_record(
                (ResourceKind::Physical, own),
                (ResourceKind::Mapped, address),
            ),
            None => releasing.taken = take(&[ResourceKind::Physical], own),
        }
    }
    Some(releasing)
}

impl Releasing {
    /// The handle was released.
    pub(crate) fn released(self) {
        if self.handles <= 1 && self.mapped.is_none() {
            with(|table| table.physical.remove(&self.number));
        }
    }

    /// The driver refused.
    #[cold]
    pub(crate) fn failed(self) {
        let own = with(|table| {
            let physical = table.physical.get_mut(&self.number)?;
            physical.handles = self.handles;
            for value in &physical.values {
                table.by_handle.insert(*value, self.number);
            }
            Some(physical.handle)
        });
        if let (1, Some(address), Some(own)) = (self.handles, self.mapped, own) {
            move_record(
                (ResourceKind::Mapped, address),
                (ResourceKind::Physical, own),
            );
        }
        put_back(self.taken);
    }
}

/// Everything in a range of addresses was unmapped. The addresses stay reserved for the program, so no other thread maps
/// there before this returns.
pub(crate) fn unmapped(start: u64, size: u64) {
    let end = start.saturating_add(size);
    loop {
        let change = with(|table| {
            let (&address, &(_, number)) = table.mappings.range(start..end).next()?;
            table.mappings.remove(&address);
            let Some(physical) = table.physical.get_mut(&number) else {
                return Some(Change::None);
            };
            let was_first = physical.mapped.first() == Some(&address);
            physical.mapped.retain(|other| *other != address);
            if physical.handles > 0 {
                return Some(Change::None);
            }
            Some(match physical.mapped.first() {
                None => {
                    table.physical.remove(&number);
                    Change::Freed(address)
                }
                Some(&next) if was_first => Change::Moved(address, next),
                Some(_) => Change::None,
            })
        });
        match change {
            None => return,
            Some(Change::None) => {}
            Some(Change::Freed(address)) => forget(ResourceKind::Mapped, address),
            Some(Change::Moved(address, next)) => {
                move_record(
                    (ResourceKind::Mapped, address),
                    (ResourceKind::Mapped, next),
                );
            }
        }
    }
}

/// What the end of a mapping means for the record.
enum Change {
    None,
    /// There is no handle and no other mapping.
    Freed(u64),
    /// The record had this address; another mapping is left.
    Moved(u64, u64),
}

/// The device that has physical memory, by the kind and address of its record; `CU_DEVICE_CPU` for memory of the host.
pub(crate) fn device_of(kind: ResourceKind, address: u64) -> Option<i32> {
    with(|table| {
        let number = match kind {
            ResourceKind::Mapped => table.at(address)?,
            _ => *table.by_handle.get(&address)?,
        };
        table.physical.get(&number)?.device
    })
}

/// Where the physical memory with a handle is mapped: addresses and sizes. A program that has one of them has the memory.
pub(crate) fn ranges_of(handle: u64) -> Vec<(u64, u64)> {
    with(|table| {
        let number = table.by_handle.get(&handle);
        let physical = number.and_then(|number| table.physical.get(number));
        let mapped = physical.map_or(&[][..], |physical| &physical.mapped);
        let size = |address: &u64| {
            table
                .mappings
                .get(address)
                .map(|(size, _)| (*address, *size))
        };
        mapped.iter().filter_map(size).collect()
    })
}
