//! `/proc`.

use super::Machine;
use crate::file::proc_text::{Load, Memory, System, TaskFacts, Times, contents};
use crate::fs::proc::{Node, Text};
use crate::fs::process::OomScore;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{O_CREAT, O_RDONLY, O_WRONLY};
use hartline_linux::resource::{RLIM_INFINITY, RLIM_NLIMITS, Rlimit64};
use hartline_linux::stat::{S_IFDIR, S_IFLNK, S_IFMT};

struct Facts;

impl System for Facts {
    fn children(&self) -> &[u32] {
        &[7, 9]
    }

    fn task(&self) -> TaskFacts {
        TaskFacts {
            tid: 2,
            state: 'S',
            parent: 1,
            group: 2,
            session: 2,
            foreground: 2,
            threads: 3,
            nice: 5,
            user_time: 1_000_000_000,
            ..TaskFacts::default()
        }
    }

    fn limits(&self) -> &[Rlimit64; RLIM_NLIMITS] {
        &[Rlimit64 {
            rlim_cur: 8 << 20,
            rlim_max: RLIM_INFINITY,
        }; RLIM_NLIMITS]
    }

    fn ipc(&self, out: &mut String, _: Text) {
        out.push_str("table\n");
    }

    fn load(&self) -> Load {
        Load {
            tasks: 4,
            running: 2,
            last: 9,
            cpu_time: 10_000_000_000,
            system_time: 4_000_000_000,
            averages: [3 << 10, 1 << 11, 51],
        }
    }

    fn arguments(&self) -> Vec<u8> {
        b"prog\0arg\0".to_vec()
    }

    fn environment(&self) -> Vec<u8> {
        b"A=b\0".to_vec()
    }

    fn auxiliary_vector(&self) -> Vec<u8> {
        vec![0; 16]
    }

    fn name(&self) -> Vec<u8> {
        b"prog".to_vec()
    }

    fn maps(&self, out: &mut String, _: bool) {
        out.push_str("map\n");
    }

    fn memory(&self) -> Memory {
        Memory {
            total: 1 << 30,
            free: 1 << 29,
            mapped: 8 << 20,
            resident: 4 << 20,
            locked: 1 << 20,
        }
    }

    fn times(&self) -> Times {
        Times {
            uptime: 12_345_678_901,
            boot: 5_000_000_000,
        }
    }

    fn identity(&self) -> [&str; 4] {
        ["6.12.0", "#1", "host", "domain"]
    }

    fn processors(&self) -> u32 {
        2
    }

    fn console_level(&self) -> u8 {
        4
    }

    fn random(&mut self, _: bool) -> [u8; 16] {
        [0xff; 16]
    }
}

fn text(m: &mut Machine, path: &str) -> Result<String, Errno> {
    let ino = m.resolve(path, true)?.existing()?;
    let node = Node::from_ino(ino).ok_or(Errno::ENOENT)?;
    let bytes = contents(node, (&m.vfs, &m.net), &m.process, &mut Facts)?;
    Ok(String::from_utf8(bytes).expect("text"))
}

fn link(m: &mut Machine, path: &str) -> Result<String, Errno> {
    let ino = m.at(path)?;
    let bytes = m.vfs.read_link(ino, &m.process)?;
    Ok(String::from_utf8(bytes).expect("text"))
}

#[test]
fn texts() {
    let mut m = Machine::sample();
    let mut is = |path: &str, expected: &str| assert_eq!(text(&mut m, path).unwrap(), expected);
    is("/proc/self/cmdline", "prog\0arg\0");
    is("/proc/1/environ", "A=b\0");
    is("/proc/1/auxv", &"\0".repeat(16));
    is("/proc/self/maps", "map\n");
    is("/proc/self/comm", "prog\n");
    is("/proc/uptime", "12.34 14.68\n");
    is("/proc/loadavg", "1.50 1.00 0.02 2/4 9\n");
    is("/sys/devices/system/cpu/online", "0-1\n");
    is("/proc/sys/kernel/osrelease", "6.12.0\n");
    is("/proc/sys/kernel/hostname", "host\n");
    is("/proc/self/statm", "2048 1024 0 0 0 1024 0\n");
    is(
        "/proc/sys/kernel/random/uuid",
        "ffffffff-ffff-4fff-bfff-ffffffffffff\n",
    );
    is(
        "/proc/mounts",
        "hartline / tmpfs rw,relatime 0 0\ndevtmpfs /dev devtmpfs rw,relatime 0 0\n\
         proc /proc proc rw,relatime 0 0\nsysfs /sys sysfs rw,relatime 0 0\n\
         cgroup /sys/fs/cgroup cgroup2 ro,nosuid,nodev,noexec,relatime 0 0\n",
    );
    let info = text(&mut m, "/proc/meminfo").unwrap();
    assert!(info.starts_with("MemTotal:        1048576 kB\nMemFree:          524288 kB\n"));
    let stat = text(&mut m, "/proc/self/stat").unwrap();
    assert_eq!(stat.split_whitespace().count(), 52);
    assert_eq!(
        text(&mut m, "/proc/cpuinfo")
            .unwrap()
            .matches("hart")
            .count(),
        2
    );
    assert!(text(&mut m, "/proc/stat").unwrap().contains("btime 5\n"));
    assert_eq!(text(&mut m, "/proc/self"), Err(Errno::EINVAL));
}

#[test]
fn processors_and_groups() {
    let mut m = Machine::sample();
    m.process.registry.set_processors(2);
    let mut is = |path: &str, expected: &str| assert_eq!(text(&mut m, path).unwrap(), expected);
    is("/sys/devices/system/cpu/cpu1/topology/core_id", "1\n");
    is("/sys/devices/system/cpu/cpu1/topology/core_cpus", "2\n");
    is("/sys/devices/system/cpu/cpu0/topology/package_cpus", "3\n");
    is("/sys/devices/system/node/node0/cpulist", "0-1\n");
    is("/sys/fs/cgroup/memory.max", "max\n");
    is("/sys/fs/cgroup/memory.current", "536870912\n");
    is("/sys/fs/cgroup/pids.current", "4\n");
    is("/sys/fs/cgroup/cgroup.procs", "1\n");
    let times = text(&mut m, "/sys/fs/cgroup/cpu.stat").unwrap();
    assert!(times.starts_with("usage_usec 10000000\nuser_usec 6000000\nsystem_usec 4000000\n"));
    for missing in ["cpu2", "cpu01", "cpu", "cpu0x"] {
        let path = format!("/sys/devices/system/cpu/{missing}");
        assert_eq!(m.at(&path), Err(Errno::ENOENT));
    }
    let group = m.at("/sys/fs/cgroup").unwrap();
    let path = m.vfs.fs.path(group, m.process.root, &m.process);
    assert_eq!(path.unwrap(), b"/sys/fs/cgroup");
    let file = m.open("/sys/fs/cgroup/memory.max", O_WRONLY, 0);
    assert_eq!(file, Err(Errno::EROFS));
}

#[test]
fn the_name_of_a_task_can_be_written() {
    let mut m = Machine::sample();
    let fd = m.open("/proc/self/comm", O_WRONLY, 0).unwrap();
    assert_eq!(m.write(fd, b"a longer name than 15 bytes"), Ok(27));
    assert_eq!(m.write(fd, b"short\0hidden"), Ok(12));
    let name = |text: &[u8]| {
        let mut name = [0; 16];
        name[..text.len()].copy_from_slice(text);
        (1, name)
    };
    assert_eq!(m.world.names, [name(b"a longer name t"), name(b"short")]);
    assert_eq!(link(&mut m, "/proc/thread-self").unwrap(), "1/task/1");
}

#[test]
fn oom_scores() {
    let mut m = Machine::sample();
    // 4 MiB of 1 GiB are 3 thousandths.
    for (adjustment, expected) in [
        (0, "668\n"),
        (1000, "1335\n"),
        (-999, "3\n"),
        (-1000, "0\n"),
    ] {
        m.process.oom_score.set(OomScore {
            adjustment,
            least: 0,
        });
        assert_eq!(text(&mut m, "/proc/self/oom_score").unwrap(), expected);
    }
}

#[test]
fn links() {
    let mut m = Machine::sample();
    assert_eq!(link(&mut m, "/proc/self").unwrap(), "1");
    assert_eq!(link(&mut m, "/proc/mounts").unwrap(), "self/mounts");
    assert_eq!(link(&mut m, "/proc/self/cwd").unwrap(), "/");
    let fd = m.open("/etc/motd", O_RDONLY, 0).unwrap();
    let path = format!("/proc/self/fd/{fd}");
    assert_eq!(link(&mut m, &path).unwrap(), "/etc/motd");
    assert_eq!(m.contents(&path).unwrap(), b"hello\n");
    m.unlink("/etc/zmotd").unwrap();
    m.unlink("/etc/motd").unwrap();
    assert_eq!(link(&mut m, &path).unwrap(), "/motd (deleted)");
    assert_eq!(m.contents(&path).unwrap(), b"hello\n");
    let directory = m.open("/bin", O_RDONLY, 0).unwrap();
    let path = format!("/dev/fd/{directory}/sh");
    assert_eq!(m.contents(&path).unwrap().len(), 10_000);
    assert!(
        link(&mut m, "/proc/self/fd/1")
            .unwrap()
            .starts_with("pipe:[")
    );
    assert_eq!(link(&mut m, "/proc/self/fd/99"), Err(Errno::ENOENT));
    assert_eq!(link(&mut m, "/proc/self/fd/01"), Err(Errno::ENOENT));
    assert_eq!(link(&mut m, "/proc/uptime"), Err(Errno::EINVAL));
}

#[test]
fn directories() {
    let mut m = Machine::sample();
    let kind = |m: &mut Machine, path: &str| {
        let ino = m.at(path).unwrap();
        m.vfs.fs.attributes(ino, &m.process).unwrap().mode & S_IFMT
    };
    assert_eq!(kind(&mut m, "/proc/self"), S_IFLNK);
    assert_eq!(kind(&mut m, "/proc/self/"), S_IFDIR);
    assert_eq!(kind(&mut m, "/proc/1"), S_IFDIR);
    assert_eq!(m.at("/proc/3"), Err(Errno::ENOENT));
    assert_eq!(m.at("/proc/self/fd/../../.."), m.at("/"));
    let fds = m.at("/proc/self/fd").unwrap();
    let path = m.vfs.fs.path(fds, m.process.root, &m.process);
    assert_eq!(path.unwrap(), b"/proc/1/fd");
    let node = Node::from_ino(fds).unwrap();
    let mut names = Vec::new();
    let mut cookie = 0;
    while let Some((at, name, _)) = node.next_entry(cookie, &m.process) {
        names.push(name);
        cookie = at + 1;
    }
    assert_eq!(names, [b"0", b"1", b"2"]);
    // Every listed name can be looked up.
    m.process.registry.set_processors(2);
    for directory in [
        "/proc",
        "/proc/self",
        "/proc/sys",
        "/proc/sys/kernel",
        "/sys/devices/system/cpu",
        "/sys/devices/system/cpu/cpu1/topology",
        "/sys/fs/cgroup",
    ] {
        let ino = m.resolve(directory, true).unwrap().existing().unwrap();
        let node = Node::from_ino(ino).unwrap();
        let (mut cookie, mut count) = (0, 0);
        while let Some((at, name, found)) = node.next_entry(cookie, &m.process) {
            assert_eq!(node.lookup(&name, &m.process), Some(found));
            assert_eq!(found.parent(&m.process), Some(node));
            assert_eq!(Node::from_ino(found.ino()), Some(found));
            (cookie, count) = (at + 1, count + 1);
        }
        assert!(count >= 3, "{directory}");
    }
}

#[test]
fn nothing_can_be_changed() {
    let mut m = Machine::sample();
    assert_eq!(m.mkdir("/proc/x").unwrap_err(), Errno::ENOENT);
    assert_eq!(m.unlink("/proc/uptime"), Err(Errno::EPERM));
    assert_eq!(m.open("/proc/uptime", O_WRONLY, 0), Err(Errno::EACCES));
    assert_eq!(m.open("/proc/x", O_CREAT, 0o600), Err(Errno::ENOENT));
    let ino = m.at("/proc/uptime").unwrap();
    assert_eq!(
        m.vfs.fs.set_mode(ino, 0, &m.process.cred),
        Err(Errno::EPERM)
    );
    assert_eq!(m.vfs.fs.truncate(ino, 0), Err(Errno::EPERM));
}
