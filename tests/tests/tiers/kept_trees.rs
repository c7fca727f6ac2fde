//! Packed root file systems that later runs take from the cache.

use hartline_tests::process::{self, Outcome};
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile, hartline, paths};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// The time after which a changed file can be told from its earlier contents.
const SETTLED: Duration = Duration::from_millis(2100);

/// A kind of root file system.
#[derive(Debug, Clone, Copy)]
enum Form {
    Directory,
    Tar,
    Erofs,
}

/// A directory with busybox and some files, a root file system made of it, and an empty cache.
struct Place {
    folder: Scratch,
    form: Form,
}

pub fn add(suite: &mut Suite) {
    for form in [Form::Directory, Form::Tar, Form::Erofs] {
        suite.add_kvm(format!("a packed tree is kept: {form:?}"), move || {
            kept(form)
        });
    }
    suite.add_kvm("a packed tree that is damaged, or for other volumes", other);
    suite.add_kvm("one run of several keeps the packed tree", at_once);
}

impl Place {
    fn new(form: Form) -> Result<Self> {
        let folder = Scratch::new()?;
        let bin = folder.path().join("files/bin");
        fs::create_dir_all(&bin)?;
        fs::copy(paths::busybox(), bin.join("busybox"))?;
        let place = Self { folder, form };
        for number in 0..50_usize {
            place.write(&format!("small{number}"), &"x".repeat(number * 300))?;
        }
        Ok(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.path("files").join(name), text)?)
    }

    fn root(&self) -> PathBuf {
        self.path(match self.form {
            Form::Directory => "files",
            Form::Tar => "root.tar.gz",
            Form::Erofs => "root.erofs",
        })
    }

    /// Makes the root file system of the files anew, and waits until it can be told from its earlier
    /// contents.
    fn make(&self) -> Result<()> {
        let (root, files) = (self.root(), self.path("files"));
        let mut command = match self.form {
            Form::Directory => Command::new("true"),
            Form::Tar => Command::new("tar"),
            Form::Erofs => Command::new("mkfs.erofs"),
        };
        match self.form {
            Form::Directory => {}
            Form::Tar => drop(command.arg("-czf").arg(root).arg("-C").arg(files).arg(".")),
            Form::Erofs => drop(command.arg("--quiet").arg(root).arg(files)),
        }
        compile::check(&mut command)?;
        thread::sleep(SETTLED);
        Ok(())
    }

    fn command(&self, script: &str, options: &[&str]) -> Result<Command> {
        let mut command = hartline::command("run")?;
        command
            .env("HARTLINE_CACHE", self.path("cache"))
            .env("HARTLINE_KEEP_TREE", "always")
            .args(options)
            .arg("--rootfs")
            .arg(self.root())
            .args(["/bin/busybox", "sh", "-c", script]);
        Ok(command)
    }

    /// Runs a script of busybox.
    fn run(&self, script: &str, options: &[&str]) -> Result<Outcome> {
        process::run(&mut self.command(script, options)?, b"")
    }

    /// Checks the files that a run sees.
    fn check(&self, options: &[&str]) -> Result<()> {
        let (sum, find) = (
            "/bin/busybox cat /small*",
            "/bin/busybox find / -name 'small*'",
        );
        let script = format!("{sum} | /bin/busybox md5sum; {find} | /bin/busybox sort");
        let outcome = self.run(&script, options)?;
        let files = self.path("files");
        let here = format!(
            "cd '{}'; cat small* | md5sum; find -name 'small*' | sed s/^.// | LC_ALL=C sort",
            files.display()
        );
        let here = process::run(
            Command::new("bash").env("LC_ALL", "C").args(["-c", &here]),
            b"",
        )?;
        match outcome.code == 0 && outcome.stdout == here.stdout && here.stdout.len() > 100 {
            true => Ok(()),
            false => Err(format!("{outcome:?} instead of {here:?}").into()),
        }
    }

    /// The kept trees, with the time of their last use.
    fn trees(&self) -> Result<Vec<(PathBuf, std::time::SystemTime)>> {
        let mut trees = Vec::new();
        for entry in fs::read_dir(self.path("cache"))? {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "tree")
            {
                let used = fs::metadata(&path)?.modified()?;
                trees.push((path, used));
            }
        }
        trees.sort();
        Ok(trees)
    }
}

/// A second run uses the tree of the first one, and a run after a change does not.
fn kept(form: Form) -> Result<()> {
    let place = Place::new(form)?;
    place.make()?;
    place.check(&[])?;
    let first = place.trees()?;
    place.check(&[])?;
    let second = place.trees()?;
    let [(path, made)] = &first[..] else {
        return Err(format!("after the first run: {first:?}").into());
    };
    let is_used = |(again, used): &(PathBuf, _)| again == path && used > made;
    if second.len() != 1 || !is_used(&second[0]) {
        return Err(format!("{first:?}, then {second:?}").into());
    }
    // Contents of the same length.
    place.write("small7", &"y".repeat(7 * 300))?;
    if matches!(form, Form::Directory) {
        // The change is too recent for a stamp.
        place.check(&[])?;
        if place.trees()?.len() != 1 {
            return Err("a tree was kept that may still change".into());
        }
    }
    place.make()?;
    for _ in 0..2 {
        place.check(&[])?;
    }
    let never = place.trees()?;
    place.check(&["--keep-tree", "never"])?;
    match never.len() == 2 && place.trees()? == never {
        true => Ok(()),
        false => Err(format!("{never:?}, then {:?}", place.trees()?).into()),
    }
}

/// Damaged files are packed again. Each set of mount points has its own tree.
fn other() -> Result<()> {
    let place = Place::new(Form::Erofs)?;
    place.make()?;
    place.check(&[])?;
    let (path, _) = place.trees()?.remove(0);
    let length = fs::metadata(&path)?.len();
    let damages: [&dyn Fn() -> std::io::Result<()>; 3] = [
        &|| open(&path)?.write_all_at(&[1; 8], length - 50),
        &|| open(&path)?.set_len(length / 2),
        &|| open(&path)?.set_len(0),
    ];
    for damage in damages {
        damage()?;
        place.check(&[])?;
        if fs::metadata(&path)?.len() != length {
            return Err("it was not made again".into());
        }
    }
    fs::create_dir(place.path("host"))?;
    fs::write(place.path("host/here"), "volume\n")?;
    let volume = format!("{}:/small1:ro", place.path("host").display());
    for _ in 0..2 {
        let outcome = place.run("/bin/busybox cat /small1/here", &["--volume", &volume])?;
        if outcome.stdout != b"volume\n" {
            return Err(format!("{outcome:?}").into());
        }
    }
    place.check(&[])?;
    match place.trees()?.len() {
        2 => Ok(()),
        count => Err(format!("{count} trees").into()),
    }
}

fn open(path: &Path) -> std::io::Result<fs::File> {
    fs::File::options().write(true).open(path)
}

/// Runs that begin at the same time with an empty cache.
fn at_once() -> Result<()> {
    let place = Place::new(Form::Directory)?;
    place.make()?;
    thread::scope(|scope| {
        let runs: Vec<_> = (0..4).map(|_| scope.spawn(|| place.check(&[]))).collect();
        let ends = runs.into_iter().map(|run| run.join());
        ends.map(|end| end.unwrap_or_else(|_| Err("panicked".into())))
            .collect::<Result<Vec<_>>>()
    })?;
    place.check(&[])?;
    match place.trees()?.len() {
        1 => Ok(()),
        count => Err(format!("{count} trees").into()),
    }
}
