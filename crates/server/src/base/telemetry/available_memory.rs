//! Available memory: of the machine, and of each control group above this process, such as that of a container or a service.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Available bytes of the machine, or of the control group that has least.
pub(crate) fn available_bytes() -> Option<u64> {
    let of_machine = kilobytes(&read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    let of_groups = groups(&read_to_string("/proc/self/cgroup").unwrap_or_default());
    Some(of_groups.iter().filter_map(Group::available).fold(of_machine, u64::min))
}

/// A line of `/proc/meminfo`, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// A control group, in either version of its files.
#[derive(Debug, PartialEq)]
struct Group {
    folder: PathBuf,
    limit: &'static str,
    used: &'static str,
}

/// The groups that bound this process, by the text of `/proc/self/cgroup`: its own one and all above. Inside a container its own
/// one is the root of what is mounted.
fn groups(text: &str) -> Vec<Group> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, limit, used) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => continue,
        };
        let above = Path::new(path).ancestors().filter_map(|path| path.strip_prefix("/").ok());
        found.extend(above.map(|path| Group { folder: Path::new(root).join(path), limit, used }));
    }
    found
}

impl Group {
    /// What is left of its limit; `None` without one. The kernel takes cached files back before it ends a process.
    fn available(&self) -> Option<u64> {
        let read = |name: &str| read_to_string(self.folder.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let limit = number(self.limit)?;
        let cached = cached_files(&read("memory.stat").unwrap_or_default());
        Some(limit.saturating_sub(number(self.used)?.saturating_sub(cached)))
    }
}

/// Bytes of files in memory that can be read again: `active_file` and `inactive_file` of `memory.stat`.
fn cached_files(text: &str) -> u64 {
    let amounts = text.lines().filter_map(|line| {
        let (name, amount) = line.split_once(' ')?;
        ["active_file", "inactive_file"].contains(&name).then(|| amount.parse::<u64>().ok())?
    });
    amounts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_in_kilobytes() {
        let text = "MemTotal:       24684136 kB\nMemAvailable:     100 kB\n";
        assert_eq!(kilobytes(text, "MemAvailable:"), Some(102_400));
        assert_eq!(kilobytes(text, "Swap:"), None);
        assert!(available_bytes().unwrap() > 1 << 20);
    }

    #[test]
    fn a_process_is_bounded_by_its_group_and_by_all_above() {
        let folders = |text| groups(text).into_iter().map(|group| group.folder).collect::<Vec<_>>();
        let service =
            ["system.slice/models.service", "system.slice", ""].map(|path| Path::new("/sys/fs/cgroup").join(path));
        assert_eq!(folders("0::/system.slice/models.service\n"), service);
        assert_eq!(folders("9:name=systemd:/\n4:memory:/\n1:cpu:/a\n"), [Path::new("/sys/fs/cgroup/memory/")]);
    }

    #[test]
    fn cached_files_do_not_count_as_used() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let group = Group { folder: folder.path().into(), limit: "memory.max", used: "memory.current" };
        write("memory.current", "900\n");
        write("memory.stat", "anon 300\nactive_file 400\ninactive_file 200\nfile 600\n");
        write("memory.max", "max\n");
        assert_eq!(group.available(), None);
        write("memory.max", "1000\n");
        assert_eq!(group.available(), Some(700));
    }
}
