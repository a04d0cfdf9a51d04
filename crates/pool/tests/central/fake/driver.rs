//! The functions of the driver. Where the real one leaves the behaviour undefined, they panic.

use super::{Error, Fake, MIB, Mapping, PAGE, Physical, Point, Stream, UNIT};
use cuguard_pool::Driver;

impl Driver for Fake {
    type Error = Error;
    type Stream = Stream;
    type Point = Point;

    fn stream_id(stream: &Stream) -> u64 {
        *stream
    }

    fn is_out_of_memory(error: &Error) -> bool {
        *error == Error::OutOfMemory
    }

    fn reserve(&self, bytes: u64) -> Result<u64, Error> {
        let mut inner = self.call("reserve")?;
        assert_eq!(bytes % PAGE, 0);
        if bytes > inner.reservable {
            return Err(Error::TooLarge);
        }
        // The next reservation is adjacent, so that a mapping over both of them would be noticed.
        let address = inner.next_address;
        inner.next_address += bytes;
        inner.reservations.insert(address, bytes);
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<(), Error> {
        let mut inner = self.call("unreserve")?;
        assert_eq!(
            inner.reservations.get(&address),
            Some(&bytes),
            "unreserve of a part"
        );
        assert!(
            inner
                .mappings
                .range(address..address + bytes)
                .next()
                .is_none(),
            "unreserve of mapped memory"
        );
        inner.reservations.remove(&address);
        Ok(())
    }

    fn require_free(&self, bytes: u64) -> Result<(), Error> {
        let inner = self.call("require_free")?;
        match inner.card - inner.taken < bytes {
            true => Err(Error::OutOfMemory),
            false => Ok(()),
        }
    }

    fn create(&self, bytes: u64) -> Result<u64, Error> {
        let mut inner = self.call("create")?;
        assert!(bytes == PAGE || bytes == 64 * MIB);
        if inner.taken + bytes > inner.card {
            return Err(Error::OutOfMemory);
        }
        inner.taken += bytes;
        inner.last_handle += 1;
        let handle = inner.last_handle;
        let physical = Physical {
            bytes,
            ..Physical::default()
        };
        inner.physical.insert(handle, physical);
        Ok(handle)
    }

    fn release(&self, handle: u64) -> Result<(), Error> {
        let mut inner = self.call("release")?;
        if inner.refused_handle == Some(handle) {
            return Err(Error::Refused("release"));
        }
        let physical = inner
            .physical
            .get_mut(&handle)
            .expect("release of an unknown handle");
        assert!(!physical.released, "a handle is released twice");
        physical.released = true;
        inner.drop_if_unused(handle);
        Ok(())
    }

    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), Error> {
        let mut inner = self.call("map")?;
        assert_eq!(address % PAGE, 0);
        let (&start, &length) = inner
            .reservations
            .range(..=address)
            .next_back()
            .expect("map outside a reservation");
        assert!(
            address + bytes <= start + length,
            "map over the end of a reservation"
        );
        if let Some((&before, mapping)) = inner.mappings.range(..address + bytes).next_back() {
            assert!(
                before + mapping.bytes <= address,
                "map of {address:#x}, which is mapped"
            );
        }
        let physical = inner
            .physical
            .get_mut(&handle)
            .expect("map of an unknown handle");
        assert!(!physical.released, "map of a released handle");
        assert_eq!(physical.bytes, bytes, "map of a part of a handle");
        physical.mappings += 1;
        let mapping = Mapping {
            bytes,
            handle,
            access: false,
        };
        inner.mappings.insert(address, mapping);
        Ok(())
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), Error> {
        let mut inner = self.call("unmap")?;
        inner.forget_complete();
        let overlaps = |start: u64, count: u64| start < address + bytes && address < start + count;
        assert!(
            !inner
                .in_flight
                .iter()
                .any(|(&start, used)| overlaps(start, used.bytes)),
            "unmap of {address:#x}, which a stream still uses"
        );
        if !inner.quiet {
            let live = inner.live.range(..address + bytes).next_back();
            assert!(
                !live.is_some_and(|(&start, &count)| overlaps(start, count)),
                "unmap of a live block at {address:#x}"
            );
        }
        for start in inner.whole("unmap", address, bytes) {
            let mapping = inner.mappings.remove(&start).expect("it is there");
            inner
                .physical
                .get_mut(&mapping.handle)
                .expect("it is there")
                .mappings -= 1;
            inner.drop_if_unused(mapping.handle);
        }
        Ok(())
    }

    fn set_access(&self, address: u64, bytes: u64) -> Result<(), Error> {
        let mut inner = self.call("set_access")?;
        for start in inner.whole("set_access", address, bytes) {
            inner.mappings.get_mut(&start).expect("it is there").access = true;
        }
        Ok(())
    }

    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), Error> {
        self.call("copy")?.copies.push((to, from, bytes));
        Ok(())
    }

    fn wait_for_copies(&self) -> Result<(), Error> {
        let mut inner = self.call("wait_for_copies")?;
        for (to, from, bytes) in std::mem::take(&mut inner.copies) {
            let (source, source_offset, _) = inner
                .translate(from, bytes)
                .expect("a copy of memory without access");
            let (target, target_offset, _) = inner
                .translate(to, bytes)
                .expect("a copy to memory without access");
            let units = |offset: u64| offset / UNIT..(offset + bytes) / UNIT;
            let tags: Vec<(u64, u64)> = inner.physical[&source]
                .tags
                .range(units(source_offset))
                .map(|(&unit, &tag)| (unit - source_offset / UNIT + target_offset / UNIT, tag))
                .collect();
            let physical = inner.physical.get_mut(&target).expect("it is there");
            let old: Vec<u64> = physical
                .tags
                .range(units(target_offset))
                .map(|(&unit, _)| unit)
                .collect();
            for unit in old {
                physical.tags.remove(&unit);
            }
            physical.tags.extend(tags);
        }
        Ok(())
    }

    fn record(&self, stream: &Stream) -> Result<Point, Error> {
        let mut inner = self.call("record")?;
        let progress = inner.streams.entry(*stream).or_default();
        Ok(Point {
            stream: *stream,
            position: progress.enqueued,
        })
    }

    fn is_complete(&self, point: &Point) -> Result<bool, Error> {
        let inner = self.call("is_complete")?;
        Ok(inner.streams[&point.stream].complete >= point.position)
    }
}
