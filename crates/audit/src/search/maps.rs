//! The mappings of the process, from `/proc/thread-self/maps`.

use std::ops::Range;

/// Where systems mount file systems of huge pages: `/dev/hugepages`, `/dev/hugepages1G`.
const HUGE_PAGES: &str = "/dev/hugepages";

/// A mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Region {
    pub(super) addresses: Range<u64>,
    pub(super) readable: bool,
    /// And readable.
    pub(super) writable: bool,
    pub(super) shared: bool,
    /// A path, a name in brackets, or empty.
    pub(super) name: String,
}

impl Region {
    /// Whether the program can keep addresses in it: where it can write, and where it could and has taken the right away
    /// with `mprotect`.
    pub(super) fn is_searched(&self) -> bool {
        let is_sealed = self.readable && self.is_anonymous();
        (self.writable || is_sealed) && !self.is_device()
    }

    /// Memory of a device, or of a driver's own protocol: reading may have effects. Pinned memory may be shared memory
    /// of `/dev/zero` and belongs to the program, as do files in file systems that are mounted there.
    pub(super) fn is_device(&self) -> bool {
        const OF_PROGRAMS: [&str; 3] = ["/dev/shm/", "/dev/zero", HUGE_PAGES];
        let is_file = || std::fs::metadata(&self.name).is_ok_and(|file| file.is_file());
        let name = self.name.as_str();
        // The first names also for files that were deleted.
        name.starts_with("/dev/")
            && !OF_PROGRAMS.iter().any(|known| name.starts_with(known))
            && !is_file()
    }

    /// Whether pages that the process has not touched hold nothing. Reading those of huge pages would allocate them.
    pub(super) fn is_empty_untouched(&self) -> bool {
        !self.shared || self.name.starts_with(HUGE_PAGES)
    }

    /// Memory without a file: of `mmap`, of an allocator, or a stack.
    pub(super) fn is_anonymous(&self) -> bool {
        !self.shared && (self.name.is_empty() || self.name.starts_with("[anon"))
    }
}

/// The parts of a range of addresses that are mapped, with whatever rights. The mappings are sorted.
pub(super) fn mapped(
    regions: &[Region],
    addresses: Range<u64>,
) -> impl Iterator<Item = Range<u64>> + '_ {
    let first = regions.partition_point(|region| region.addresses.end <= addresses.start);
    let end = addresses.end;
    let regions = regions[first..].iter();
    regions
        .take_while(move |region| region.addresses.start < end)
        .map(move |region| {
            region.addresses.start.max(addresses.start)..region.addresses.end.min(end)
        })
}

/// Parses the text of `/proc/thread-self/maps`. Lines that it does not understand are skipped.
pub(super) fn parse(text: &[u8]) -> Vec<Region> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Region> {
    // ADDRESS-ADDRESS rwxp OFFSET DEVICE INODE      NAME
    // A path may have any bytes; it is only shown.
    let line = String::from_utf8_lossy(line);
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let rights = fields.next()?.as_bytes();
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let name = fields.nth(3).unwrap_or("").trim_start();
    Some(Region {
        addresses: start..end,
        readable: rights.first() == Some(&b'r'),
        writable: rights.first() == Some(&b'r') && rights.get(1) == Some(&b'w'),
        shared: rights.get(3) == Some(&b's'),
        name: name.to_owned(),
    })
}

/// The process's mappings now. None where they cannot be read.
pub(super) fn read() -> Vec<Region> {
    // Not `/proc/self/maps`, which is that of the main thread, and empty once it has ended.
    // `read` grows its buffer from the arena; it does not use `malloc`.
    parse(&std::fs::read("/proc/thread-self/maps").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter;

    #[test]
    fn lines_of_all_kinds() {
        let text =
            b"55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0                          [heap]\n\
            7f00c0000000-7f00c0021000 rw-p 00000000 00:00 0 \n\
            7f00c0021000-7f00c4000000 ---p 00000000 00:00 0 \n\
            7f00d0000000-7f00d0001000 r--p 0001b000 fe:01 1234   /usr/lib/a name.so (deleted)\n\
            7f00d0001000-7f00d0002000 rw-s 00000000 00:06 5 /dev/nvidia0\n\
            7f00d0003000-7f00d0004000 rw-s 00000000 00:06 5 /dev/zero (deleted)\n\
            7f00d0005000-7f00d0006000 r--p 00000000 00:00 0 \n\
            nonsense\n";
        let regions = parse(text);
        assert_eq!(regions.len(), 7);
        assert_eq!(regions[0].addresses, 0x55d0c0a00000..0x55d0c0a21000);
        assert_eq!(regions[0].name, "[heap]");
        assert_eq!(regions[3].name, "/usr/lib/a name.so (deleted)");
        let searched: Vec<_> = regions.iter().map(Region::is_searched).collect();
        assert_eq!(searched, [true, true, false, false, false, true, true]);
        let anonymous: Vec<_> = regions.iter().map(Region::is_anonymous).collect();
        assert_eq!(anonymous, [false, true, true, false, false, false, true]);
    }

    #[test]
    fn files_below_dev_are_searched_and_devices_are_not() {
        use std::os::fd::AsRawFd;
        let file = std::fs::File::open("/proc/self/exe").expect("this program has a file");
        let descriptor = file.as_raw_fd();
        for (name, is_searched) in [
            ("/dev/hugepages/rtemap_0", true),
            ("/dev/hugepages1G/heap (deleted)", true),
            ("/dev/shm/table", true),
            (format!("/dev/fd/{descriptor}").as_str(), true),
            ("/dev/null", false),
            ("/dev/nvidia-uvm", false),
            ("/dev/not-there/file", false),
        ] {
            let line = format!("7f00d0001000-7f00d0002000 rw-s 00000000 00:06 5 {name}\n");
            let searched: Vec<_> = parse(line.as_bytes())
                .iter()
                .map(Region::is_searched)
                .collect();
            assert_eq!(searched, [is_searched], "{name}");
        }
    }

    #[test]
    fn the_mapped_parts_of_a_range() {
        let regions = parse(b"1000-2000 rw-p 0 0 0\n3000-4000 ---p 0 0 0\n4000-6000 rw-s 0 0 0\n");
        assert_eq!(regions.len(), 3);
        let parts = |addresses| mapped(&regions, addresses).collect::<Vec<_>>();
        assert!(mapped(&regions, 0x1008..0x1010).eq(iter::once(0x1008..0x1010)));
        assert_eq!(
            parts(0x1800..0x5000),
            [0x1800..0x2000, 0x3000..0x4000, 0x4000..0x5000]
        );
        assert_eq!(parts(0..0x1000), []);
        assert_eq!(parts(0x2000..0x3000), []);
        assert_eq!(parts(0x6000..0x7000), []);
    }

    #[test]
    fn this_process_has_a_stack() {
        assert!(
            read()
                .iter()
                .any(|region| region.name == "[stack]" && region.is_searched())
        );
    }
}
