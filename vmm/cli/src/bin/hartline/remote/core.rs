//! `hartline core`: the core dump of a machine.

use super::{Remote, done, table, wait};
use crate::say;
use anyhow::Context;
use hartline_cli::client::{self, ClientError, Connection, escape};
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `hartline core`.
#[derive(Debug, clap::Args)]
pub struct Core {
    #[command(flatten)]
    remote: Remote,

    /// Id or name of the machine, which was created with --core-limit
    machine: String,

    /// File for the core dump; -: standard output
    #[arg(default_value = "core")]
    file: PathBuf,
}

/// Copies the core dump of a machine to a file.
///
/// # Errors
/// The daemon refuses, there is no core dump, or the file cannot be written.
pub fn core(arguments: &Core) -> anyhow::Result<ExitCode> {
    wait(async {
        let mut daemon = arguments.remote.connect().await?;
        let path = format!("/v1/machines/{}", escape(&arguments.machine));
        let answer = get(&mut daemon, &format!("{path}/core")).await?;
        if arguments.file == Path::new("-") {
            copy(answer, &mut io::stdout().lock()).await?;
            return done();
        }
        let name = arguments.file.display();
        let file = create(&arguments.file).with_context(|| name.to_string())?;
        let length = match keep(answer, file).await {
            Ok(length) => length,
            Err(error) => {
                // A part must not look like the whole. A device stays.
                if fs::metadata(&arguments.file).is_ok_and(|file| file.is_file()) {
                    let _ = fs::remove_file(&arguments.file);
                }
                return Err(error.context(name.to_string()));
            }
        };
        let machine: Value = daemon.json(Method::GET, &path, None).await?;
        say(&format!(
            "core dump of {} KiB in {name}",
            length.div_ceil(1024)
        ));
        if let Some(error) = machine["core"]["error"].as_str().filter(|e| !e.is_empty()) {
            let machine = table::text(&machine, "id");
            say(&format!(
                "the core dump of machine {machine} ends early: {error}"
            ));
        }
        done()
    })
}

async fn get(daemon: &mut Connection, path: &str) -> Result<Incoming, ClientError> {
    let nothing = client::full(Vec::new());
    let answer = daemon.send(Method::GET, path, None, nothing).await?;
    Ok(answer.into_body())
}

/// Makes the file. The program's memory may have secrets.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)
}

/// Writes an answer to a file, with holes for parts that are zero. Result: bytes.
async fn keep(answer: Incoming, file: File) -> anyhow::Result<u64> {
    let mut sparse = Sparse(file);
    copy(answer, &mut sparse).await?;
    let Sparse(mut file) = sparse;
    let length = file.stream_position()?;
    if file.metadata()?.is_file() {
        file.set_len(length)?;
    }
    Ok(length)
}

async fn copy(mut answer: Incoming, output: &mut impl Write) -> anyhow::Result<()> {
    while let Some(frame) = answer.frame().await {
        if let Ok(bytes) = frame.map_err(ClientError::from)?.into_data() {
            output.write_all(&bytes)?;
        }
    }
    Ok(output.flush()?)
}

/// Writes holes in place of zeros.
struct Sparse(File);

impl Write for Sparse {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match bytes.iter().all(|&byte| byte == 0) {
            true => {
                let length = i64::try_from(bytes.len()).map_err(io::Error::other)?;
                self.0.seek(SeekFrom::Current(length))?;
                Ok(bytes.len())
            }
            false => self.0.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
