//! `hartline cp`: copies of files between this computer and a machine, with the rules of
//! `docker cp` for targets.

mod pack;
mod place;
mod stream;
mod unpack;

use self::pack::Pack;
use self::place::{Ending, Place};
use self::stream::{Incoming, Meter, outgoing};
use self::unpack::{Root, Unpack};
use super::{Remote, done, wait};
use anyhow::{Context, bail, ensure};
use hartline_cli::client::{Body, ClientError, Connection, escape, full};
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming as Answer;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

/// The media type of tar files.
const TAR: &str = "application/x-tar";

/// Arguments of `hartline cp`.
#[derive(Debug, clap::Args)]
pub struct Cp {
    #[command(flatten)]
    remote: Remote,

    /// If SRC is a symbolic link, copy the file that it leads to
    #[arg(short = 'L', long)]
    follow_link: bool,

    /// Keep owners and groups; otherwise they are root in the machine, and the caller here
    #[arg(short, long)]
    archive: bool,

    /// Show no progress
    #[arg(short, long)]
    quiet: bool,

    /// MACHINE:PATH, a local path (with a slash before the first colon), or - for a tar file on
    /// standard input
    #[arg(value_name = "SRC")]
    source: OsString,

    /// MACHINE:PATH, a local path, or - for a tar file on standard output
    #[arg(value_name = "DST")]
    destination: OsString,
}

/// Copies files.
///
/// # Errors
/// There is no such file, the daemon refuses, or files cannot be written.
pub fn cp(arguments: &Cp) -> anyhow::Result<ExitCode> {
    let source = Place::parse(&arguments.source)?;
    let destination = Place::parse(&arguments.destination)?;
    wait(async {
        let mut copy = Copy {
            daemon: arguments.remote.connect().await?,
            arguments,
        };
        match (source, destination) {
            (Place::Machine { id, path }, Place::Local(to)) => copy.pull(&id, &path, &to).await,
            (Place::Machine { id, path }, Place::Stream) => copy.print(&id, &path).await,
            (Place::Local(from), Place::Machine { id, path }) => copy.push(&from, &id, &path).await,
            (Place::Stream, Place::Machine { id, path }) => {
                let body = stream::standard_input(copy.meter());
                copy.put(&id, &path, body).await
            }
            (Place::Machine { .. }, Place::Machine { .. }) => {
                bail!("one of SRC and DST must be local, or -")
            }
            _ => bail!("one of SRC and DST must be MACHINE:PATH"),
        }
    })?;
    done()
}

struct Copy<'a> {
    daemon: Connection,
    arguments: &'a Cp,
}

/// Where a file goes: a directory, and the name in it; without a name, the contents of a directory go
/// into it.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    directory: PathBuf,
    name: Option<OsString>,
}

/// What exists at a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Existing {
    Nothing,
    Directory,
    /// A regular file, or a link to one.
    File,
    Other,
}

/// Applies the rules of `docker cp`: where a source with this name goes.
fn target(
    (source, is_directory): (&Path, bool),
    destination: &Path,
    existing: Existing,
) -> anyhow::Result<Target> {
    let shown = destination.display();
    let name = place::name(source);
    let takes_contents = place::ending(source) == Ending::Contents;
    let beside = || -> anyhow::Result<Target> {
        let name = destination.file_name();
        let name = name.with_context(|| format!("{shown}: not the name of a file"))?;
        let directory = match destination.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => Path::new("/"),
        };
        Ok(Target {
            directory: directory.to_path_buf(),
            name: Some(name.to_os_string()),
        })
    };
    match existing {
        Existing::Directory => Ok(Target {
            directory: destination.to_path_buf(),
            name: name.filter(|_| !(is_directory && takes_contents)),
        }),
        Existing::File if is_directory => bail!("{shown}: a directory cannot replace a file"),
        Existing::File if place::ending(destination) != Ending::Plain => {
            bail!("{shown}: not a directory")
        }
        Existing::Nothing if !is_directory && place::ending(destination) != Ending::Plain => {
            bail!("{shown}: no such directory")
        }
        Existing::Nothing | Existing::File => beside(),
        Existing::Other => bail!("{shown}: neither a regular file nor a directory"),
    }
}

impl Copy<'_> {
    fn meter(&self) -> Meter {
        Meter::new(self.arguments.quiet)
    }

    /// What exists at a path of a machine.
    async fn existing(&mut self, id: &str, path: &str, follow: bool) -> anyhow::Result<Existing> {
        let query = format!("{}?path={}&follow={follow}", files(id), escape(path));
        let answer = self
            .daemon
            .send(Method::HEAD, &query, None, full(Vec::new()))
            .await;
        let answer = match answer {
            // The answer to HEAD has no text: a request with one follows, and says the reason.
            Err(ClientError::Problem { status: 404, .. }) => {
                let machine = format!("/v1/machines/{}", escape(id));
                let found = self
                    .daemon
                    .json::<serde_json::Value>(Method::GET, &machine, None);
                found.await.with_context(|| id.to_owned())?;
                return Ok(Existing::Nothing);
            }
            Err(ClientError::Problem { .. }) => {
                drop(self.get(id, path).await?);
                bail!("{id}:{path}: the daemon does not say what this is");
            }
            answer => answer?,
        };
        let kind = answer.headers().get("hartline-file-type");
        Ok(match kind.map(hyper::header::HeaderValue::as_bytes) {
            Some(b"directory") => Existing::Directory,
            Some(b"file") => Existing::File,
            // Without `follow`, a link is a source like a file.
            Some(b"link") if !follow => Existing::File,
            _ => Existing::Other,
        })
    }

    /// Requests a tar file.
    async fn get(&mut self, id: &str, path: &str) -> anyhow::Result<Answer> {
        let follow = self.arguments.follow_link;
        let query = format!("{}?path={}&follow={follow}", files(id), escape(path));
        let answer = self
            .daemon
            .send(Method::GET, &query, None, full(Vec::new()))
            .await;
        Ok(answer.with_context(|| format!("{id}:{path}"))?.into_body())
    }

    /// Sends a tar file.
    async fn put(&mut self, id: &str, path: &str, body: Body) -> anyhow::Result<()> {
        let owners = self.arguments.archive;
        let query = format!("{}?path={}&owners={owners}", files(id), escape(path));
        let answer = self.daemon.send(Method::PUT, &query, Some(TAR), body).await;
        answer.with_context(|| format!("{id}:{path}"))?;
        Ok(())
    }

    /// Copies a tar file to standard output.
    async fn print(&mut self, id: &str, path: &str) -> anyhow::Result<()> {
        let mut answer = self.get(id, path).await?;
        let mut meter = self.meter();
        let mut output = io::stdout().lock();
        while let Some(frame) = answer.frame().await {
            if let Ok(bytes) = frame.map_err(ClientError::from)?.into_data() {
                output.write_all(&bytes)?;
                meter.add(bytes.len());
            }
        }
        Ok(output.flush()?)
    }

    /// Copies files from a machine.
    async fn pull(&mut self, id: &str, path: &str, to: &Path) -> anyhow::Result<()> {
        let existing = match fs::metadata(to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Existing::Nothing,
            found => match found.with_context(|| to.display().to_string())? {
                found if found.is_dir() => Existing::Directory,
                found if found.is_file() => Existing::File,
                _ => Existing::Other,
            },
        };
        let follow = self.arguments.follow_link || path.ends_with('/');
        let is_directory = self.existing(id, path, follow).await? == Existing::Directory;
        let mut answer = self.get(id, path).await?;
        let target = target((Path::new(path), is_directory), to, existing)?;
        let (sender, incoming) = Incoming::new();
        let owners = self.arguments.archive;
        let unpacking = thread::spawn(move || -> anyhow::Result<u64> {
            let root = Root::open(&target.directory, target.name)?;
            Unpack::new(root, owners).run(incoming)
        });
        let mut meter = self.meter();
        while let Some(frame) = answer.frame().await {
            let bytes = match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(bytes)) => bytes,
                Ok(Err(_)) => continue,
                Err(error) => {
                    // What has arrived so far is not whole.
                    let _ = sender.send(Err(io::ErrorKind::UnexpectedEof.into())).await;
                    let _ = unpacking.join();
                    return Err(anyhow::Error::from(error))
                        .with_context(|| format!("{id}:{path}: the copy broke off"));
                }
            };
            meter.add(bytes.len());
            if sender.send(Ok(bytes)).await.is_err() {
                // Unpacking has failed.
                break;
            }
        }
        drop(sender);
        drop(meter);
        let unpacked = unpacking.join();
        match unpacked.map_err(|_| anyhow::anyhow!("unpacking was aborted"))?? {
            0 => Ok(()),
            count => bail!("{count} devices and FIFOs were left out"),
        }
    }

    /// Copies files to a machine.
    async fn push(&mut self, from: &Path, id: &str, path: &str) -> anyhow::Result<()> {
        let follow = self.arguments.follow_link || place::ending(from) != Ending::Plain;
        let found = match follow {
            true => fs::metadata(from),
            false => fs::symlink_metadata(from),
        };
        let found = found.with_context(|| from.display().to_string())?;
        let existing = self.existing(id, path, true).await?;
        let destination = Path::new(path);
        let target = target((from, found.is_dir()), destination, existing)?;
        let directory = target
            .directory
            .to_str()
            .context("a path that is not UTF-8")?;
        let (writer, body) = outgoing(self.meter());
        let pack = Pack {
            root: from.to_path_buf(),
            name: target.name,
            follow,
        };
        let packing = tokio::task::spawn_blocking(move || pack.run(writer));
        let sent = self.put(id, directory, body).await;
        // The task of the connection may still have the body after an early answer. It must run on, or
        // the thread would wait for it for ever.
        match packing.await.context("packing was aborted")? {
            Ok(left_out) => {
                sent?;
                ensure!(left_out == 0, "{left_out} sockets were left out");
                Ok(())
            }
            // The daemon's answer says why nobody reads any more.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => sent,
            Err(error) => Err(error.into()),
        }
    }
}

/// The files of a machine in the API.
fn files(id: &str) -> String {
    format!("/v1/machines/{}/files", escape(id))
}

/// A name of a file of a stranger, for a message.
fn shown(name: &[u8]) -> String {
    OsStr::from_bytes(name)
        .to_string_lossy()
        .escape_debug()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_those_of_docker() {
        let of = |source: &str, is_directory, destination: &str, existing| {
            let found = target(
                (Path::new(source), is_directory),
                Path::new(destination),
                existing,
            );
            found.ok().map(|target| {
                let name = target.name.map(|name| name.into_string().unwrap());
                (target.directory.to_str().unwrap().to_owned(), name)
            })
        };
        let some =
            |directory: &str, name: &str| Some((directory.to_owned(), Some(name.to_owned())));
        use Existing::{Directory, File, Nothing, Other};
        for (source, is_directory, destination, existing, wanted) in [
            ("a/f", false, "/x/g", Nothing, some("/x", "g")),
            ("f", false, "g", Nothing, some(".", "g")),
            ("f", false, "/g", File, some("/", "g")),
            ("f", false, "/x/", Nothing, None),
            ("f", false, "/x/", File, None),
            ("f", false, "/x", Directory, some("/x", "f")),
            ("f", false, "/x/", Directory, some("/x/", "f")),
            ("f", false, "/x", Other, None),
            ("a/d", true, "/x", Nothing, some("/", "x")),
            ("a/d", true, "/x/", Nothing, some("/", "x")),
            ("a/d/.", true, "/x", Nothing, some("/", "x")),
            ("a/d", true, "/x", File, None),
            ("a/d", true, "/x", Directory, some("/x", "d")),
            ("a/d/", true, "/x", Directory, some("/x", "d")),
            (
                "a/d/.",
                true,
                "/x",
                Directory,
                Some(("/x".to_owned(), None)),
            ),
            ("/", true, "/x", Directory, Some(("/x".to_owned(), None))),
        ] {
            let found = of(source, is_directory, destination, existing);
            assert_eq!(found, wanted, "{source} to {destination}, {existing:?}");
        }
    }
}
