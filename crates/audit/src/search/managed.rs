//! Managed memory. The program reads and writes it as its own, so it may hold addresses, as that of a list whose nodes are
//! managed.
//!
//! A block is searched when its own address was found: one that the program has lost leads nowhere. Reading needs no call
//! of the driver. It moves pages to the host, which may have less memory than the program has of managed memory: hence
//! the limit.

use std::fs;
use std::path::Path;

use super::maps::{self, Region};
use super::read::{Part, parts};
use super::scan::{Item, Scan};
use super::workers::Workers;

/// A round of fewer bytes is searched sooner than threads are woken. A list has a round for each node.
const ROUND: u64 = 1 << 20;

/// Searches the managed memory that was found, and what is found by that. Blocks that do not fit into `room` bytes, in the
/// order in which they are found, are not read. Returns whether each part was done, and the bytes that did not fit.
///
/// The blocks were listed while the program ran, which may have freed some before its threads stopped, and may have kept
/// their addresses. What is not among the mappings holds nothing.
pub(super) fn search(
    scan: &Scan<'_>,
    workers: &Workers,
    regions: &[Region],
    mut room: u64,
) -> (bool, u64) {
    let (mut complete, mut too_large) = (true, 0_u64);
    loop {
        let (mut items, before) = (Vec::new(), room);
        for (addresses, holder) in scan.reached() {
            let mapped = || maps::mapped(regions, addresses.clone());
            let length = mapped().map(|part| part.end - part.start).sum();
            let Some(rest) = room.checked_sub(length) else {
                too_large = too_large.saturating_add(length);
                continue;
            };
            room = rest;
            items.extend(mapped().flat_map(parts).map(|addresses| Item {
                part: Part {
                    addresses,
                    // The system does not say which pages are on the device.
                    private: false,
                    holes: 0..0,
                },
                holder,
            }));
        }
        if items.is_empty() {
            return (complete, too_large);
        }
        let search = |part: usize| scan.item(&items[part]);
        complete &= match before - room < ROUND {
            true => workers.run_here(items.len(), &search),
            false => workers.run(items.len(), &search),
        };
    }
}

/// How many bytes may move to the host: half of what is available there. `None` where the system does not say.
pub(super) fn room() -> Option<u64> {
    let host = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let groups = fs::read_to_string("/proc/thread-self/cgroup").unwrap_or_default();
    half_of_available(&host, left_in_groups(Path::new("/sys/fs/cgroup"), &groups))
}

fn half_of_available(host: &str, group: Option<u64>) -> Option<u64> {
    let host = field(host, "MemAvailable:")?.saturating_mul(1 << 10);
    Some(group.unwrap_or(u64::MAX).min(host) / 2)
}

/// Why blocks did not fit into the room, in words.
pub(super) fn why_too_large(room: Option<u64>) -> &'static str {
    match room {
        Some(_) => "reading moves it to the host, and may use half of the available memory there",
        None => {
            "reading moves it to the host, and how much memory is available there could not be read"
        }
    }
}

/// What the control groups in `/proc/thread-self/cgroup`, and those around them, may still use: the driver counts these
/// pages there. Version 2 has one line `0::/path`, version 1 a line `4:memory:/path`. `None` without a limit.
fn left_in_groups(mount: &Path, groups: &str) -> Option<u64> {
    let left = |line: &str| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let group = group.trim_start_matches('/');
        if controllers.is_empty() {
            return left_in_group(mount, group, &VERSION_2);
        }
        let mut controllers = controllers.split(',');
        let has_memory = controllers.any(|controller| controller == "memory");
        has_memory.then(|| left_in_group(&mount.join("memory"), group, &VERSION_1))?
    };
    groups.lines().filter_map(left).min()
}

/// What a version of control groups calls its files, and a line of `memory.stat`.
struct Version {
    limit: &'static str,
    used: &'static str,
    files: &'static str,
}

const VERSION_1: Version = Version {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    // The line without `total_` does not count the groups below.
    files: "total_inactive_file",
};
const VERSION_2: Version = Version {
    limit: "memory.max",
    used: "memory.current",
    files: "inactive_file",
};

fn left_in_group(root: &Path, group: &str, version: &Version) -> Option<u64> {
    let group = root.join(group);
    let groups = group
        .ancestors()
        .take_while(|group| group.starts_with(root));
    let left = groups.filter_map(|group| {
        let read = |name: &str| fs::read_to_string(group.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        // Without a limit, version 2 has the word `max` and version 1 a number beyond any host.
        let limit = number(version.limit)?;
        // Files that were read are dropped from memory when it is needed.
        let files = read("memory.stat").and_then(|stat| field(&stat, version.files));
        let used = number(version.used).unwrap_or(limit);
        Some(limit.saturating_sub(used.saturating_sub(files.unwrap_or(0))))
    });
    left.min()
}

/// The number behind a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok())?
    };
    text.lines().find_map(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_field() {
        let text = "MemTotal:       24682416 kB\nMemAvailable:   23824564 kB\n";
        assert_eq!(field(text, "MemAvailable:"), Some(23_824_564));
        assert_eq!(field(text, "Mem"), None);
        assert_eq!(field("inactive_file\n", "inactive_file"), None);
        assert!(room().is_some_and(|room| room > 0));
    }

    #[test]
    fn without_the_available_memory_there_is_no_room() {
        let text = "MemAvailable:   8 kB\n";
        assert_eq!(half_of_available(text, None), Some(4096));
        assert_eq!(half_of_available(text, Some(1000)), Some(500));
        for unknown in ["", "MemTotal: 8 kB\n"] {
            let room = half_of_available(unknown, Some(1000));
            assert_eq!(room, None);
            assert!(why_too_large(room).ends_with("could not be read"));
        }
    }

    #[test]
    fn the_smallest_limit_of_the_groups_counts() {
        let root = std::env::temp_dir().join(format!("cuguard-groups-{}", std::process::id()));
        let inner = root.join("outer/inner");
        fs::create_dir_all(&inner).unwrap();
        let write = |group: &Path, limit: &str, used: &str, files: &str| {
            fs::write(group.join("memory.max"), limit).unwrap();
            fs::write(group.join("memory.current"), used).unwrap();
            let stat = format!("anon 7\ninactive_file {files}\nactive_file 9\n");
            fs::write(group.join("memory.stat"), stat).unwrap();
        };
        assert_eq!(left_in_groups(&root, "0::/outer/inner\n"), None);
        write(&inner, "max\n", "10\n", "0");
        assert_eq!(left_in_groups(&root, "0::/outer/inner\n"), None);
        write(&root.join("outer"), "1000\n", "700\n", "200");
        assert_eq!(left_in_groups(&root, "0::/outer/inner\n"), Some(500));
        write(&inner, "400\n", "600\n", "0");
        assert_eq!(left_in_groups(&root, "0::/outer/inner\n"), Some(0));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn limits_of_version_1_count() {
        let root = std::env::temp_dir().join(format!("cuguard-groups-1-{}", std::process::id()));
        let group = root.join("memory/box");
        fs::create_dir_all(&group).unwrap();
        let groups = "5:devices:/box\n4:cpu,memory:/box\n1:name=systemd:/\n0::/\nnonsense\n";
        assert_eq!(left_in_groups(&root, groups), None);
        let write = |group: &Path, limit: &str, used: &str, stat: &str| {
            fs::write(group.join("memory.limit_in_bytes"), limit).unwrap();
            fs::write(group.join("memory.usage_in_bytes"), used).unwrap();
            fs::write(group.join("memory.stat"), stat).unwrap();
        };
        let stat = "cache 90\ninactive_file 1\ntotal_inactive_file 50\n";
        write(&group, "1000\n", "700\n", stat);
        write(&root.join("memory"), "9223372036854771712\n", "900\n", "");
        assert_eq!(left_in_groups(&root, groups), Some(350));
        // The least of both versions.
        fs::write(root.join("memory.max"), "300\n").unwrap();
        fs::write(root.join("memory.current"), "100\n").unwrap();
        assert_eq!(left_in_groups(&root, groups), Some(200));
        // A container sees the path of the host, and its own group as the root.
        write(&root.join("memory"), "150\n", "0\n", "");
        assert_eq!(left_in_groups(&root, "4:memory:/not/here\n"), Some(150));
        fs::remove_dir_all(root).unwrap();
    }
}
