//! The most host memory that this process can have: the physical memory or the cgroup limit (swap is not counted).
//!
//! Linux overcommits memory and kills processes when it runs out. So a guard that is about to lock memory, or to write
//! it in full, compares the size with this limit first. The limit ignores how much memory is free now, because the
//! kernel drops caches, and other processes free memory.

use std::path::Path;
use std::sync::OnceLock;

use crate::error::{Error, Result};

/// Fails with [`Error::OutOfHostMemory`] if the limit is less than `bytes`.
pub(crate) fn check(operation: &'static str, bytes: usize) -> Result<()> {
    let limit = limit();
    if bytes as u64 <= limit {
        return Ok(());
    }
    Err(error(operation, bytes, Some(limit)))
}

/// An empty vector with room for `len` values, of `bytes` bytes together.
pub(crate) fn host_vec<T>(operation: &'static str, len: usize, bytes: usize) -> Result<Vec<T>> {
    // A device may have more memory than the host.
    check(operation, bytes)?;
    let mut values = Vec::new();
    let reserved = values.try_reserve_exact(len);
    reserved.map_err(|_| error(operation, bytes, None))?;
    Ok(values)
}

/// The error of a host allocation; `limit` is `None` if the allocator failed.
pub(crate) fn error(operation: &'static str, bytes: usize, limit: Option<u64>) -> Error {
    Error::OutOfHostMemory {
        operation,
        bytes: bytes as u64,
        limit,
    }
}

/// The physical memory, or the limit of the process's cgroup if that is less; `u64::MAX` if unknown. Read once: neither
/// changes often.
fn limit() -> u64 {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let read = |file: &Path| std::fs::read_to_string(file).ok();
        physical_memory().min(cgroup_limit(&groups, read))
    })
}

fn physical_memory() -> u64 {
    // SAFETY: `sysconf` accesses no memory of the caller.
    let sysconf = |name| u64::try_from(unsafe { libc::sysconf(name) }).ok();
    let pages = sysconf(libc::_SC_PHYS_PAGES).zip(sysconf(libc::_SC_PAGESIZE));
    pages.map_or(u64::MAX, |(count, size)| count.saturating_mul(size))
}

/// The least memory limit of the cgroups in `/proc/self/cgroup`: version 2 has one line `0::/path`, version 1 a line
/// `4:memory:/path`. A limit also holds for child cgroups, so every ancestor counts.
fn cgroup_limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> u64 {
    let mut least = u64::MAX;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (root, file) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.max")
        } else if controllers.split(',').any(|one| one == "memory") {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            continue;
        };
        let group = Path::new(root).join(path.trim_start_matches('/'));
        for group in group.ancestors().take_while(|up| up.starts_with(root)) {
            let text = read(&group.join(file)).unwrap_or_default();
            // Without a limit, version 2 has the word `max` and version 1 a number beyond any host.
            least = least.min(text.trim().parse().unwrap_or(u64::MAX));
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit_of(groups: &str, files: &[(&str, &str)]) -> u64 {
        cgroup_limit(groups, |file| {
            let (_, text) = files.iter().find(|(name, _)| Path::new(name) == file)?;
            Some((*text).to_owned())
        })
    }

    #[test]
    fn the_least_limit_of_all_ancestors_counts() {
        let files = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "4096\n"),
            ("/sys/fs/cgroup/memory.max", "8192\n"),
            ("/sys/fs/cgroup/other/memory.max", "1\n"),
        ];
        assert_eq!(limit_of("0::/a/b\n", &files), 4096);
        assert_eq!(limit_of("0::/\n", &files), 8192);
    }

    #[test]
    fn both_versions_are_read() {
        let groups = "5:devices:/\n4:cpu,memory:/box\n0::/\n";
        let files = [
            ("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "100\n"),
            (
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
        ];
        assert_eq!(limit_of(groups, &files), 100);
    }

    #[test]
    fn what_cannot_be_read_is_no_limit() {
        for groups in ["", "nonsense", "0::/a\n", "1:name=systemd:/\n"] {
            assert_eq!(limit_of(groups, &[]), u64::MAX, "{groups:?}");
        }
        assert!(limit() > 0);
        assert!(check("test", usize::MAX).is_err() && check("test", 0).is_ok());
    }
}
