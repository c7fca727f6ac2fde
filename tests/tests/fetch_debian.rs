//! `deploy/setup/fetch-debian.sh` and `update-lock.sh` with a test mirror: the files that they
//! request, and their messages if the mirror, the index or a package is broken.

#[path = "fetch_debian/archive.rs"]
mod archive;
#[path = "fetch_debian/mirror.rs"]
mod mirror;

use archive::{ARCH, Key, Package};
use hartline_tests::process::{self, Outcome};
use hartline_tests::suite::Suite;
use hartline_tests::{Result, paths};
use mirror::{Answer, Mirror};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU32, Ordering};

const INDEX: &str = "dists/trixie/main/binary-riscv64/Packages";

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.add("a locked package needs no index", no_index);
    suite.add("file: mirror", file_mirror);
    suite.add("a package that is gone is found by the index", gone);
    suite.add("an index of up to a day ago is fetched again", old_index);
    suite.add("gone, and the index does not fit the Release", unfit_index);
    suite.add("gone, and the index is signed by another key", wrong_key);
    suite.add("gone also according to the index", gone_twice);
    suite.add("a package that is not locked", not_locked);
    suite.add("members of a metapackage", metapackage);
    suite.add("wrong hash", wrong_hash);
    suite.add("wrong hash once", wrong_hash_once);
    suite.add("wrong hash of a package of the index", wrong_hash_of_index);
    suite.add("damaged file in the cache", damaged_cache);
    suite.add("the server breaks off", breaks_off);
    suite.add("the server breaks off once", breaks_off_once);
    suite.add("nothing reachable", unreachable);
    suite.add("update-lock.sh", update_lock);
    suite.add("the lock has every package of the scripts", complete_lock);
    suite.run()
}

/// A checkout that contains only the scripts, a cache, and a mirror.
struct Setting {
    folder: PathBuf,
    mirror: Mirror,
    key: Key,
}

impl Setting {
    fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Not in the target directory: the path of a Unix socket may have at most 107 bytes.
        let name = format!("hartline-fetch-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let scripts = folder.join("deploy/setup");
        fs::create_dir_all(&scripts)?;
        for name in [
            "debian.sh",
            "debian-index.sh",
            "fetch-debian.sh",
            "mirror.sh",
            "update-lock.sh",
        ] {
            let script = paths::repository().join("deploy/setup").join(name);
            symlink(script, scripts.join(name))?;
        }
        let setting = Self {
            mirror: Mirror::new()?,
            key: Key::new(folder.join("key"))?,
            folder,
        };
        setting.lock("")?;
        Ok(setting)
    }

    fn package(&self, version: &str) -> Result<Package> {
        Package::new(&self.folder, "hello", version, "")
    }

    fn lock(&self, lines: &str) -> Result<()> {
        Ok(fs::write(
            self.folder.join("deploy/setup/debian.lock"),
            lines,
        )?)
    }

    fn serve(&self, package: &Package) {
        let bytes = package.bytes.clone();
        self.mirror.set(&package.path, vec![Answer::Whole(bytes)]);
    }

    /// Serves an index of `packages`, signed with `key`.
    fn serve_index(&self, packages: &[&Package], key: &Key) -> Result<()> {
        let text = archive::index(packages);
        let release = key.in_release(&text)?;
        self.mirror
            .set("dists/trixie/InRelease", vec![Answer::Whole(release)]);
        self.mirror.set(INDEX, vec![Answer::Whole(text.into())]);
        Ok(())
    }

    /// Serves an index that is longer than its size in the Release file.
    fn serve_unfit_index(&self, packages: &[&Package]) -> Result<()> {
        self.serve_index(packages, &self.key)?;
        let text = archive::index(packages) + "\n";
        self.mirror.set(INDEX, vec![Answer::Whole(text.into())]);
        Ok(())
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new(self.folder.join("deploy/setup").join(script));
        command
            .env("HARTLINE_DEBS", self.folder.join("cache"))
            .env("HARTLINE_MIRROR", &self.mirror.url)
            .env("HARTLINE_KEYRING", &self.key.keyring)
            .env("HARTLINE_FETCH_DELAYS", "0 0")
            .env_remove("APT_CONFIG");
        for proxy in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env_remove(proxy);
        }
        command
    }

    fn fetch(&self, packages: &[&str]) -> Result<Outcome> {
        let mut command = self.command("fetch-debian.sh");
        command.arg(ARCH).arg(self.tree()).args(packages);
        process::run(&mut command, b"")
    }

    fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// Returns the unpacked version of `name`.
    fn unpacked(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.tree().join("usr/share").join(name)).ok()
    }

    fn cache(&self) -> PathBuf {
        self.folder.join("cache/apt-trixie-riscv64")
    }

    /// Checks that no package is in the tree and no file in the cache.
    fn expect_nothing(&self) -> Result<()> {
        let debs = names(&self.cache().join("debs"));
        let stamps = names(&self.tree().join(".unpacked"));
        match (&debs[..], &stamps[..], self.unpacked("hello")) {
            ([], [], None) => Ok(()),
            state => Err(format!("something was left: {state:?}").into()),
        }
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        self.key.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Compares standard error with `expected`, ignoring the address in brackets that apt adds.
fn expect(outcome: &Outcome, code: i32, expected: &str) -> Result<()> {
    let text = outcome.stderr_text();
    let text = match (text.find(" [IP: "), text.rfind("];")) {
        (Some(start), Some(end)) => text[..start].to_owned() + &text[end + 1..],
        _ => text,
    };
    if outcome.code == code && text == expected {
        return Ok(());
    }
    Err(format!("expected {code}: {expected:?}\n{outcome:?}").into())
}

fn expect_eq<T: PartialEq + std::fmt::Debug>(what: &str, left: T, right: T) -> Result<()> {
    match left == right {
        true => Ok(()),
        false => Err(format!("{what}: {left:?}, expected {right:?}").into()),
    }
}

/// The remedy at the end of errors.
const REMEDY: &str = "try again later, or name another mirror with HARTLINE_MIRROR=URL\n";

fn no_index() -> Result<()> {
    let setting = Setting::new()?;
    let package = setting.package("1:1.0+b1~2")?;
    setting.lock(&package.lock_line())?;
    setting.serve(&package);
    setting.serve_unfit_index(&[&package])?;
    expect(&setting.fetch(&["hello"])?, 0, "")?;
    expect_eq(
        "unpacked",
        setting.unpacked("hello"),
        Some("1:1.0+b1~2".into()),
    )?;
    expect(&setting.fetch(&["hello"])?, 0, "")?;
    expect_eq("requests", setting.mirror.requests(""), 1)?;
    // The cache suffices for another tree.
    fs::remove_dir_all(setting.tree())?;
    expect(&setting.fetch(&["hello"])?, 0, "")?;
    expect_eq("requests", setting.mirror.requests(""), 1)?;
    expect_eq(
        "unpacked",
        setting.unpacked("hello"),
        Some("1:1.0+b1~2".into()),
    )
}

fn file_mirror() -> Result<()> {
    for scheme in ["file", "copy"] {
        let setting = Setting::new()?;
        let package = setting.package("1.0")?;
        setting.lock(&package.lock_line())?;
        let archive = setting.folder.join("archive");
        let file = archive.join(&package.path);
        fs::create_dir_all(file.parent().unwrap_or(&archive))?;
        fs::write(&file, &package.bytes)?;
        let mut command = setting.command("fetch-debian.sh");
        command.env("HARTLINE_MIRROR", format!("{scheme}:{}", archive.display()));
        command.arg(ARCH).arg(setting.tree()).arg("hello");
        expect(&process::run(&mut command, b"")?, 0, "")?;
        expect_eq("unpacked", setting.unpacked("hello"), Some("1.0".into()))?;
        let cached = setting.cache().join("debs/hello_1.0.deb");
        let is_file = fs::symlink_metadata(cached)?.is_file();
        expect_eq("the cache has a file of its own", is_file, true)?;
    }
    Ok(())
}

fn gone() -> Result<()> {
    let setting = Setting::new()?;
    let (old, new) = (setting.package("1.0")?, setting.package("1.1")?);
    setting.lock(&old.lock_line())?;
    setting.serve(&old);
    expect(&setting.fetch(&["hello"])?, 0, "")?;

    let locked = setting.package("1.0.1")?;
    setting.lock(&locked.lock_line())?;
    setting.serve(&new);
    setting.serve_index(&[&new], &setting.key)?;
    let note = "fetch-debian: riscv64 hello: the archive has 1.1 instead of 1.0.1 (debian.lock); \
                make update-lock records it\n";
    expect(&setting.fetch(&["hello"])?, 0, note)?;
    expect_eq("unpacked", setting.unpacked("hello"), Some("1.1".into()))?;
    let stamps = names(&setting.tree().join(".unpacked"));
    expect_eq("stamps", stamps, vec!["hello_1.1".to_owned()])?;
    // Neither the missing package nor the index is requested again on the same day.
    let before = setting.mirror.requests("");
    expect(&setting.fetch(&["hello"])?, 0, note)?;
    expect_eq("requests", setting.mirror.requests(""), before)
}

fn old_index() -> Result<()> {
    let setting = Setting::new()?;
    let packages = ["1.0", "1.1", "1.2"].map(|version| setting.package(version));
    let [locked, old, new] = packages;
    let (locked, old, new) = (locked?, old?, new?);
    setting.lock(&locked.lock_line())?;
    setting.serve(&old);
    setting.serve_index(&[&old], &setting.key)?;
    expect_eq("exit code", setting.fetch(&["hello"])?.code, 0)?;
    expect_eq("unpacked", setting.unpacked("hello"), Some("1.1".into()))?;
    // An hour later the archive has the next version.
    setting.mirror.set(&old.path, Vec::new());
    setting.serve(&new);
    setting.serve_index(&[&new], &setting.key)?;
    let fetched = setting.cache().join("lists-fetched");
    let mut touch = Command::new("touch");
    touch.args(["-d", "1 hour ago"]).arg(fetched);
    expect_eq("touch", process::run(&mut touch, b"")?.code, 0)?;
    fs::remove_dir_all(setting.tree())?;
    fs::remove_dir_all(setting.cache().join("debs"))?;
    expect_eq("exit code", setting.fetch(&["hello"])?.code, 0)?;
    expect_eq("unpacked", setting.unpacked("hello"), Some("1.2".into()))
}

fn unfit_index() -> Result<()> {
    let setting = Setting::new()?;
    let (old, new) = (setting.package("1.0")?, setting.package("1.1")?);
    setting.lock(&old.lock_line())?;
    setting.serve(&new);
    setting.serve_unfit_index(&[&new])?;
    let length = archive::index(&[&new]).len();
    let error = format!(
        "fetch-debian: riscv64 hello 1.0 (debian.lock): the mirror does not have \
         pool/main/h/hello/hello_1.0_riscv64.deb (404); index of trixie riscv64: \
         File has unexpected size ({} != {length}). Mirror sync in progress?; 3 attempts; {REMEDY}",
        length + 1
    );
    expect(&setting.fetch(&["hello"])?, 1, &error)?;
    setting.expect_nothing()?;
    // The failure is not cached: the mirror works again.
    setting.serve(&old);
    expect(&setting.fetch(&["hello"])?, 0, "")
}

fn wrong_key() -> Result<()> {
    let setting = Setting::new()?;
    let (old, new) = (setting.package("1.0")?, setting.package("1.1")?);
    setting.lock(&old.lock_line())?;
    setting.serve(&new);
    setting.serve_index(&[&new], &Key::new(setting.folder.join("other"))?)?;
    let outcome = setting.fetch(&["hello"])?;
    let text = outcome.stderr_text();
    let signature = text.contains("the mirror does not have pool/")
        && text.contains("index of trixie riscv64: ")
        && text.contains("is not signed.; 3 attempts; ");
    expect_eq("exit code", outcome.code, 1)?;
    expect_eq(&text, signature, true)?;
    setting.expect_nothing()
}

fn gone_twice() -> Result<()> {
    let setting = Setting::new()?;
    let package = setting.package("1.0")?;
    setting.lock(&package.lock_line())?;
    setting.serve_index(&[&package], &setting.key)?;
    let error = format!(
        "fetch-debian: riscv64 hello 1.0 (index of trixie): the mirror does not have \
         pool/main/h/hello/hello_1.0_riscv64.deb (404); {REMEDY}"
    );
    expect(&setting.fetch(&["hello"])?, 1, &error)?;
    setting.expect_nothing()
}

fn not_locked() -> Result<()> {
    let setting = Setting::new()?;
    let package = setting.package("1.0")?;
    setting.serve(&package);
    setting.serve_index(&[&package], &setting.key)?;
    let note = |name| {
        format!(
            "fetch-debian: riscv64 {name} is not in debian.lock; \
             make update-lock adds what the scripts name\n"
        )
    };
    expect(&setting.fetch(&["hello"])?, 0, &note("hello"))?;
    expect_eq("unpacked", setting.unpacked("hello"), Some("1.0".into()))?;
    let error = note("helo")
        + "fetch-debian: riscv64 helo: not in debian.lock; \
           index of trixie riscv64: no package helo; check the name\n";
    expect(&setting.fetch(&["helo"])?, 1, &error)
}

fn metapackage() -> Result<()> {
    let setting = Setting::new()?;
    let member = |name| Package::new(&setting.folder, name, "1.0", "");
    let (old, new) = (member("kernel-1")?, member("kernel-2")?);
    let meta = Package::new(&setting.folder, "kernel", "2", "kernel-2")?;
    let lock = format!("{ARCH} kernel/depends kernel-1\n{}", old.lock_line());
    setting.lock(&lock)?;
    setting.serve(&old);
    expect(&setting.fetch(&["kernel/depends"])?, 0, "")?;
    expect_eq("unpacked", setting.unpacked("kernel-1"), Some("1.0".into()))?;
    expect_eq("requests", setting.mirror.requests(""), 1)?;
    // The next kernel has another name, which only the index has.
    setting.mirror.set(&old.path, Vec::new());
    fs::remove_dir_all(setting.folder.join("cache"))?;
    fs::remove_dir_all(setting.tree())?;
    setting.serve(&new);
    setting.serve_index(&[&new, &meta], &setting.key)?;
    expect(&setting.fetch(&["kernel/depends"])?, 0, "")?;
    expect_eq("unpacked", setting.unpacked("kernel-2"), Some("1.0".into()))?;
    expect_eq("unpacked", setting.unpacked("kernel-1"), None)
}

/// Returns the error for a file with the hash of `got` in place of `package`.
fn hash_error(package: &Package, source: &str, got: &Package) -> String {
    format!(
        "fetch-debian: riscv64 hello 1.0 ({source}): cannot download {}: wrong SHA-256 {}, \
         expected {}; nothing was unpacked; 3 attempts; {REMEDY}",
        package.path, got.sha256, package.sha256
    )
}

fn wrong_hash() -> Result<()> {
    let setting = Setting::new()?;
    let (package, other) = (setting.package("1.0")?, setting.package("6.6")?);
    setting.lock(&package.lock_line())?;
    let answers = vec![Answer::Whole(other.bytes.clone())];
    setting.mirror.set(&package.path, answers);
    setting.serve_index(&[&other], &setting.key)?;
    let error = hash_error(&package, "debian.lock", &other);
    expect(&setting.fetch(&["hello"])?, 1, &error)?;
    expect_eq("requests", setting.mirror.requests(""), 3)?;
    setting.expect_nothing()
}

fn wrong_hash_once() -> Result<()> {
    let setting = Setting::new()?;
    let (package, other) = (setting.package("1.0")?, setting.package("6.6")?);
    setting.lock(&package.lock_line())?;
    let answers = [&other, &package].map(|package| Answer::Whole(package.bytes.clone()));
    setting.mirror.set(&package.path, answers.into());
    expect(&setting.fetch(&["hello"])?, 0, "")?;
    expect_eq("unpacked", setting.unpacked("hello"), Some("1.0".into()))?;
    expect_eq("requests", setting.mirror.requests(""), 2)
}

fn wrong_hash_of_index() -> Result<()> {
    let setting = Setting::new()?;
    let (package, other) = (setting.package("1.0")?, setting.package("6.6")?);
    setting.serve_index(&[&package], &setting.key)?;
    let answers = vec![Answer::Whole(other.bytes.clone())];
    setting.mirror.set(&package.path, answers);
    let outcome = setting.fetch(&["hello"])?;
    let error = hash_error(&package, "index of trixie", &other);
    expect_eq("exit code", outcome.code, 1)?;
    let text = outcome.stderr_text();
    expect_eq(&text, text.ends_with(&error), true)?;
    setting.expect_nothing()
}

fn damaged_cache() -> Result<()> {
    let setting = Setting::new()?;
    let (package, other) = (setting.package("1.0")?, setting.package("6.6")?);
    setting.lock(&package.lock_line())?;
    setting.serve(&package);
    let debs = setting.cache().join("debs");
    fs::create_dir_all(&debs)?;
    fs::write(debs.join("hello_1.0.deb"), &other.bytes)?;
    let note = format!(
        "fetch-debian: riscv64 hello 1.0: the cached file has SHA-256 {}, debian.lock has {}; \
         downloading it again\n",
        other.sha256, package.sha256
    );
    expect(&setting.fetch(&["hello"])?, 0, &note)?;
    expect_eq("unpacked", setting.unpacked("hello"), Some("1.0".into()))
}

fn breaks_off() -> Result<()> {
    let setting = Setting::new()?;
    let package = setting.package("1.0")?;
    setting.lock(&package.lock_line())?;
    let answers = vec![Answer::Half(package.bytes.clone())];
    setting.mirror.set(&package.path, answers);
    let start = format!(
        "fetch-debian: riscv64 hello 1.0 (debian.lock): cannot download {}: ",
        package.path
    );
    let end = format!("; 3 attempts; {REMEDY}");
    let outcome = setting.fetch(&["hello"])?;
    let text = outcome.stderr_text();
    // The words between depend on apt's version.
    let reason = text.strip_prefix(&start);
    let reason = reason.and_then(|text| text.strip_suffix(&end));
    let is_told = reason.is_some_and(|reason| reason.contains("connection"));
    expect_eq(&text, (outcome.code, is_told), (1, true))?;
    expect_eq("requests", setting.mirror.requests(""), 3)?;
    setting.expect_nothing()
}

fn breaks_off_once() -> Result<()> {
    let setting = Setting::new()?;
    let package = setting.package("1.0")?;
    setting.lock(&package.lock_line())?;
    let bytes = package.bytes.clone();
    let answers = vec![Answer::Half(bytes.clone()), Answer::Whole(bytes)];
    setting.mirror.set(&package.path, answers);
    expect(&setting.fetch(&["hello"])?, 0, "")?;
    expect_eq("unpacked", setting.unpacked("hello"), Some("1.0".into()))?;
    expect_eq("requests", setting.mirror.requests(""), 2)
}

fn unreachable() -> Result<()> {
    let setting = Setting::new()?;
    let package = setting.package("1.0")?;
    setting.lock(&package.lock_line())?;
    // Bound but not listening: connections are refused, and no other process gets the port.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    let port = socket.local_addr()?.as_socket().map_or(0, |a| a.port());
    let mut command = setting.command("fetch-debian.sh");
    command.env("HARTLINE_MIRROR", format!("http://127.0.0.1:{port}/debian"));
    command.arg(ARCH).arg(setting.tree()).arg("hello");
    let error = format!(
        "fetch-debian: riscv64 hello 1.0 (debian.lock): cannot download {}: \
         Could not connect to 127.0.0.1:{port} (127.0.0.1). - connect (111: Connection refused); \
         3 attempts; {REMEDY}",
        package.path
    );
    expect(&process::run(&mut command, b"")?, 1, &error)?;
    setting.expect_nothing()
}

fn update_lock() -> Result<()> {
    let setting = Setting::new()?;
    let folder = &setting.folder;
    let hello = setting.package("1.0")?;
    let kernel = Package::new(folder, "kernel-2", "2.0", "")?;
    let meta = Package::new(folder, "kernel", "2", "kernel-2")?;
    for part in ["tests/bench", "tests/packages"] {
        fs::create_dir_all(folder.join(part))?;
    }
    for (script, packages) in [
        ("deploy/setup/setup.sh", "riscv64 kernel/depends hello"),
        ("deploy/setup/toolchain.sh", "riscv64 hello"),
        ("tests/bench/build.sh", "riscv64 hello"),
        ("tests/packages/root.sh", "kernel"),
    ] {
        let path = folder.join(script);
        // Another process writes the file. A child could inherit a descriptor of this process that
        // is open for writing, and executing the script would fail (ETXTBSY).
        let mut install = Command::new("install");
        install.args(["-m", "755", "/dev/stdin"]).arg(path);
        let text = format!("#!/bin/sh\necho {packages}\n");
        expect_eq(
            "install",
            process::run(&mut install, text.as_bytes())?.code,
            0,
        )?;
    }
    let lock = folder.join("deploy/setup/debian.lock");
    setting.lock("as it was\n")?;
    setting.serve_unfit_index(&[&hello, &kernel, &meta])?;
    let mut command = setting.command("update-lock.sh");
    let outcome = process::run(&mut command, b"")?;
    expect_eq("exit code", outcome.code, 1)?;
    let text = outcome.stderr_text();
    let said = text.contains("index of trixie riscv64: File has unexpected size")
        && text.ends_with("update-lock: deploy/setup/debian.lock is unchanged\n");
    expect_eq(&text, said, true)?;
    expect_eq("lock", fs::read_to_string(&lock)?, "as it was\n".into())?;

    setting.serve_index(&[&hello, &kernel, &meta], &setting.key)?;
    expect(&process::run(&mut command, b"")?, 0, "")?;
    let lines = |lock: &Path| -> Result<String> {
        let text = fs::read_to_string(lock)?;
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Ok(lines.map(|line| format!("{line}\n")).collect())
    };
    let expected = format!(
        "{}{}{ARCH} kernel/depends kernel-2\n",
        hello.lock_line(),
        kernel.lock_line()
    );
    expect_eq("lock", lines(&lock)?, expected)?;
    // With all that the package depends on.
    let expected = meta.lock_line() + &kernel.lock_line();
    for list in ["workloads", "suites"] {
        let lock = folder.join(format!("tests/packages/{list}.lock"));
        expect_eq(list, lines(&lock)?, expected.clone())?;
    }
    let left = names(&folder.join("deploy/setup"));
    let temporary = left.iter().filter(|name| name.starts_with("debian.lock."));
    expect_eq("temporary files", temporary.count(), 0)?;
    // A list that apt has not compared with the Release file.
    let list = names(&setting.cache().join("state/lists"));
    let list = list.iter().find(|name| name.contains("_Packages"));
    let list = list.ok_or("no list")?;
    let list = setting.cache().join("state/lists").join(list);
    fs::remove_file(&list)?;
    let changed = archive::index(&[&hello, &kernel, &meta]) + "\n";
    fs::write(list.with_file_name(plain(&list)), changed)?;
    let outcome = process::run(&mut command, b"")?;
    let warning = "update-lock: riscv64: the signed Release file names another index than the one \
                   used: run make update-lock again when the mirror serves both\n";
    expect(&outcome, 0, warning)?;
    let marked = fs::read_to_string(&lock)?.contains("\n# riscv64: unsigned: ");
    expect_eq("the lock says so", marked, true)
}

/// Returns the name of a list without the extension of its compression.
fn plain(list: &Path) -> String {
    let name = list.file_name().unwrap_or_default().to_string_lossy();
    let end = name.find("_Packages").unwrap_or(name.len());
    format!("{}_Packages", &name[..end])
}

fn complete_lock() -> Result<()> {
    let root = paths::repository();
    let text = fs::read_to_string(root.join("deploy/setup/debian.lock"))?;
    let mut locked = HashSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<_> = line.split(' ').collect();
        let is_well_formed = match words[..] {
            [_, name, _, path, sha] if !name.ends_with("/depends") => {
                path.starts_with("pool/") && path.ends_with(".deb") && sha.len() == 64
            }
            [_, name, _, ..] => name.ends_with("/depends"),
            _ => false,
        };
        expect_eq(line, is_well_formed, true)?;
        let is_new = locked.insert(format!("{} {}", words[0], words[1]));
        expect_eq("line of its own", (line, is_new), (line, true))?;
    }
    let mut missing = Vec::new();
    for script in [
        "deploy/setup/setup.sh",
        "deploy/setup/toolchain.sh",
        "tests/bench/build.sh",
    ] {
        let outcome = process::run(Command::new(root.join(script)).arg("--packages"), b"")?;
        let packages = outcome.stdout_text();
        expect_eq(script, (outcome.code, packages.is_empty()), (0, false))?;
        for line in packages.lines() {
            let mut words = line.split(' ');
            let arch = words.next().unwrap_or_default();
            let wanted = words.map(|name| format!("{arch} {name}"));
            missing.extend(wanted.filter(|package| !locked.contains(package)));
        }
    }
    for list in ["workloads", "suites"] {
        let text = fs::read_to_string(root.join(format!("tests/packages/{list}.lock")))?;
        let script = root.join("tests/packages/root.sh");
        let outcome = process::run(Command::new(script).args(["--packages", list]), b"")?;
        let packages = outcome.stdout_text();
        expect_eq(list, (outcome.code, packages.is_empty()), (0, false))?;
        for name in packages.lines() {
            if !text.contains(&format!("\n{ARCH} {name} ")) {
                missing.push(format!("{list}: {ARCH} {name}"));
            }
        }
    }
    expect_eq(
        "not in a lock file, run make update-lock",
        missing,
        Vec::<String>::new(),
    )
}
