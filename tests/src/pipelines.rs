//! Scripts of several processes, written for Debian's shells and tools
//! (`tests/programs/pipelines`), under Hartline and under the reference.

use crate::compare::check_equal;
use crate::compile::check;
use crate::dynamic::Root;
use crate::hartline::CHAOS;
use crate::process::{self, Outcome};
use crate::{Result, hartline, paths, reference};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The longest time of a run. Eight VMs on two cores with empty caches need a part of it.
const DEADLINE: Duration = Duration::from_secs(900);

/// Programs of `/usr/bin` that the scripts run.
const PROGRAMS: &[&str] = &[
    "b2sum",
    "base32",
    "base64",
    "basenc",
    "bash",
    "bc",
    "bzip2",
    "cat",
    "chmod",
    "cksum",
    "cmp",
    "column",
    "comm",
    "cp",
    "cut",
    "dash",
    "dd",
    "diff",
    "echo",
    "env",
    "expand",
    "expr",
    "false",
    "find",
    "fmt",
    "fold",
    "gawk",
    "git",
    "grep",
    "gunzip",
    "gzip",
    "head",
    "join",
    "jq",
    "ln",
    "ls",
    "m4",
    "make",
    "mawk",
    "md5sum",
    "mkdir",
    "mkfifo",
    "mktemp",
    "mv",
    "nl",
    "nohup",
    "numfmt",
    "od",
    "paste",
    "perl",
    "pr",
    "printf",
    "python3.13",
    "readlink",
    "rev",
    "rg",
    "rm",
    "sed",
    "seq",
    "sha1sum",
    "sha224sum",
    "sha256sum",
    "sha512sum",
    "shuf",
    "sleep",
    "sort",
    "split",
    "sqlite3",
    "stat",
    "tac",
    "tail",
    "tar",
    "tee",
    "timeout",
    "touch",
    "tr",
    "true",
    "truncate",
    "unexpand",
    "uniq",
    "wc",
    "xargs",
    "xz",
    "yes",
    "zcat",
];

/// The exit code if the namespaces of the reference could not be made.
const UNPREPARED: i32 = 125;

/// Folders of the scripts: the short scripts of [`names`], and longer ones.
const FOLDERS: [&str; 2] = ["tests/programs/pipelines", "tests/programs/busy"];

/// The scripts and the root directory that they run in.
#[derive(Debug)]
pub struct Pipelines {
    root: Root,
    /// The root directory as an EROFS image, which a VM maps instead of reading a tree.
    image: PathBuf,
    scripts: BTreeMap<String, Script>,
    /// A hash of the inputs of the reference's results besides a script.
    key: u64,
    expected: Mutex<BTreeMap<String, Outcome>>,
}

/// The settings of a run under Hartline.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// Folder of the translation cache.
    pub cache: &'a Path,
    /// Number of vCPUs.
    pub cpus: &'a str,
    /// The value of `HARTLINE_CHAOS`; `None`: inherit this process's value, if any.
    pub chaos: Option<&'a str>,
}

/// Returns the names of the short scripts, in order.
///
/// # Errors
/// Their folder cannot be read.
pub fn names() -> Result<Vec<String>> {
    Ok(sources(FOLDERS[0])?.into_keys().collect())
}

/// Returns the names and files of the scripts of a folder of the checkout.
fn sources(folder: &str) -> Result<BTreeMap<String, PathBuf>> {
    let mut sources = BTreeMap::new();
    for entry in fs::read_dir(paths::repository().join(folder))? {
        let path = entry?.path();
        if let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
            sources.insert(name.to_owned(), path.clone());
        }
    }
    Ok(sources)
}

/// A script.
#[derive(Debug)]
struct Script {
    /// The program that the first line names.
    shell: String,
    text: String,
}

impl Pipelines {
    /// Makes the root directory and its image.
    ///
    /// # Errors
    /// The packages were not fetched (`make test-setup`), or the directory or image cannot be made.
    pub fn new() -> Result<Self> {
        let root = Root::new("pipelines", PROGRAMS.iter().copied())?;
        let path = root.path();
        root.add_python()?;
        symlink("dash", path.join("usr/bin/sh"))?;
        let debian = paths::debian_riscv64();
        fs::create_dir_all(path.join("usr/lib/git-core"))?;
        symlink("../../bin/git", path.join("usr/lib/git-core/git"))?;
        for folder in ["scripts", "dev", "proc", "usr/share"] {
            fs::create_dir_all(path.join(folder))?;
        }
        let templates = debian.join("usr/share/git-core");
        check(
            Command::new("cp")
                .arg("-a")
                .args([&templates, &path.join("usr/share")]),
        )?;
        let mut scripts = BTreeMap::new();
        for folder in FOLDERS {
            for (name, file) in sources(folder)? {
                let text = fs::read_to_string(file)?;
                let first = text.lines().next().unwrap_or_default();
                let shell = first.strip_prefix("#!");
                let shell = shell.ok_or(format!("{name}: no #! line"))?.to_owned();
                fs::write(path.join("scripts").join(&name), &text)?;
                scripts.insert(name, Script { shell, text });
            }
        }
        let image = path.with_extension("erofs");
        let mut make = Command::new("mkfs.erofs");
        check(
            make.args(["--quiet", "-d0", "--preserve-mtime"])
                .arg(&image)
                .arg(path),
        )?;
        let mut hasher = DefaultHasher::new();
        hash_file(&reference::binary()?, &mut hasher)?;
        hash_tree(path, &mut hasher)?;
        Ok(Self {
            key: hasher.finish(),
            expected: Mutex::default(),
            root,
            image,
            scripts,
        })
    }

    /// Runs a script under Hartline.
    ///
    /// # Errors
    /// There is no such script, or the run does not end within 15 minutes.
    pub fn hartline(&self, name: &str, setting: &Setting<'_>) -> Result<Outcome> {
        let mut command = hartline::command("run")?;
        command.env("HARTLINE_CACHE", setting.cache);
        command.envs(setting.chaos.map(|chaos| (CHAOS, chaos)));
        command.args(["--cpus", setting.cpus]);
        command.args(["--env", "LC_ALL=C", "--env", "TZ=UTC", "--rootfs"]);
        command.arg(&self.image).arg("--");
        command.args(self.arguments(name)?);
        process::run_for(&mut command, b"", DEADLINE)
    }

    /// Runs a script under Hartline and compares it with the reference.
    ///
    /// # Errors
    /// The results differ; the message names the script.
    pub fn compare(&self, name: &str, setting: &Setting<'_>) -> Result<()> {
        let expected = self.expected(name)?;
        let result = self.hartline(name, setting);
        let result = result.and_then(|actual| check_equal(&expected, &actual));
        result.map_err(|error| {
            let error = error.message().unwrap_or("failed");
            format!("{name} with --cpus {}: {error}", setting.cpus).into()
        })
    }

    /// Returns the result of a script under the reference. A result is kept in the target directory
    /// as long as the script, the programs and the reference stay the same.
    ///
    /// # Errors
    /// There is no such script, or the reference cannot run it.
    pub fn expected(&self, name: &str) -> Result<Outcome> {
        let known = self.lock().get(name).cloned();
        if let Some(outcome) = known {
            return Ok(outcome);
        }
        let mut hasher = DefaultHasher::new();
        (self.key, &self.script(name)?.text).hash(&mut hasher);
        let folder = paths::work().join("pipelines-expected");
        let file = folder.join(format!("{name}-{:016x}.json", hasher.finish()));
        let outcome = match fs::read(&file).ok().as_deref().and_then(from_json) {
            Some(outcome) => outcome,
            None => {
                let outcome = self.measure(name)?;
                fs::create_dir_all(&folder)?;
                // Another process may write the same file.
                let part = file.with_extension(format!("{}.part", std::process::id()));
                fs::write(&part, to_json(&outcome).to_string())?;
                fs::rename(part, &file)?;
                outcome
            }
        };
        self.lock().insert(name.to_owned(), outcome.clone());
        Ok(outcome)
    }

    /// Runs a script under the reference, twice and compared, because the result is kept.
    fn measure(&self, name: &str) -> Result<Outcome> {
        let run = || -> Result<Outcome> {
            let outcome = process::run_for(&mut self.reference(name)?, b"", DEADLINE)?;
            match outcome.code {
                UNPREPARED => Err(format!("namespaces of the reference: {outcome:?}").into()),
                _ => Ok(outcome),
            }
        };
        let outcome = run()?;
        check_equal(&outcome, &run()?).map_err(|error| {
            let error = error.message().unwrap_or("it differs");
            format!("{name} under the reference, the second time: {error}")
        })?;
        Ok(outcome)
    }

    /// Returns the command that runs a script under the reference, in new namespaces. There
    /// `binfmt_misc` (Linux 6.7) runs riscv64 programs with the emulator, so that they can execute
    /// other programs.
    fn reference(&self, name: &str) -> Result<Command> {
        // The flag F opens the interpreter at registration, which is before chroot(2).
        const SCRIPT: &str = r#"
            root=$1 emulator=$2; shift 2
            mount -t binfmt_misc none "$root/tmp" &&
            printf '%s' ":hartline:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xf3\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:$emulator:FP" >"$root/tmp/register" &&
            mount -t tmpfs -o mode=1777 none "$root/tmp" &&
            mount --rbind /dev "$root/dev" &&
            mount -t proc none "$root/proc" || exit 125
            chroot "$root" "$@"
            exit $?"#;
        let mut command = process::with_default_signals("unshare");
        command.args(["--user", "--map-root-user", "--mount", "--pid", "--fork"]);
        command.args(["--kill-child", "sh", "-c", SCRIPT, "sh"]);
        command.arg(self.root.path()).arg(reference::binary()?);
        command.args(self.arguments(name)?);
        command.env_clear().envs(hartline::ENVIRONMENT);
        command.envs([("LC_ALL", "C"), ("TZ", "UTC"), ("QEMU_CPU", reference::CPU)]);
        Ok(command)
    }

    fn arguments(&self, name: &str) -> Result<[String; 2]> {
        Ok([self.script(name)?.shell.clone(), format!("/scripts/{name}")])
    }

    fn script(&self, name: &str) -> Result<&Script> {
        let script = self.scripts.get(name);
        script.ok_or_else(|| format!("no script {name}").into())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Outcome>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pipelines {
    fn drop(&mut self) {
        // Left-over files are a nuisance, not a failure.
        let _ = fs::remove_file(&self.image);
    }
}

/// Returns the vCPU counts of `HARTLINE_TEST_CPUS`, separated by commas; 1 if it is not set.
pub fn cpus() -> Vec<String> {
    let list = env::var("HARTLINE_TEST_CPUS").unwrap_or_else(|_| "1".into());
    list.split(',').map(str::to_owned).collect()
}

/// Hashes names, kinds, sizes and times of a directory's files, except the scripts.
fn hash_tree(folder: &Path, hasher: &mut DefaultHasher) -> Result<()> {
    let entries: std::io::Result<Vec<_>> = fs::read_dir(folder)?.collect();
    let mut paths: Vec<PathBuf> = entries?.iter().map(fs::DirEntry::path).collect();
    paths.sort();
    for path in paths.iter().filter(|path| !path.ends_with("scripts")) {
        match path.symlink_metadata()?.is_dir() {
            true => hash_tree(path, hasher)?,
            false => hash_file(path, hasher)?,
        }
    }
    Ok(())
}

fn hash_file(path: &Path, hasher: &mut DefaultHasher) -> Result<()> {
    let metadata = path.symlink_metadata()?;
    let mode = metadata.permissions().mode();
    let described = (mode, metadata.size(), metadata.mtime());
    (path.file_name(), described, fs::read_link(path).ok()).hash(hasher);
    Ok(())
}

fn to_json(outcome: &Outcome) -> Value {
    json!({ "code": outcome.code, "stdout": outcome.stdout, "stderr": outcome.stderr })
}

fn from_json(text: &[u8]) -> Option<Outcome> {
    let value: Value = serde_json::from_slice(text).ok()?;
    let bytes = |name: &str| -> Option<Vec<u8>> {
        let bytes = value[name].as_array()?.iter();
        bytes
            .map(|byte| u8::try_from(byte.as_u64()?).ok())
            .collect()
    };
    Some(Outcome {
        code: i32::try_from(value["code"].as_i64()?).ok()?,
        stdout: bytes("stdout")?,
        stderr: bytes("stderr")?,
    })
}
