//! Continues a snapshot again and again in one VM, each time from the same state:
//!
//! ```console
//! $ hartline run --snapshot warm --snapshot-at stdin --snapshot-end ./program
//! $ cargo run --release --example clones -- warm 100 < line
//! ```
//! The program's output goes to the standard output, and the times to the standard error.

use hartline_embed::{Streams, Template, TemplateOptions, WarmClone};
use std::error::Error;
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(count)) = (arguments.next(), arguments.next()) else {
        return Err("clones SNAPSHOT COUNT < INPUT".into());
    };
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input)?;
    let start = Instant::now();
    let template = Template::load(directory.as_ref(), TemplateOptions::default())?;
    let clone = WarmClone::start(&Arc::new(template))?;
    eprintln!("ready after {:.1} ms", milliseconds(start.elapsed()));
    for _ in 0..count.parse()? {
        let mut file = tempfile::tempfile()?;
        file.write_all(&input)?;
        file.rewind()?;
        let streams = Streams {
            input: Some(file.into()),
            outputs: [
                std::io::stdout().as_fd().try_clone_to_owned()?,
                std::io::stderr().as_fd().try_clone_to_owned()?,
            ],
            output_limit: u64::MAX,
        };
        let start = Instant::now();
        let end = clone.run(streams, Some(Duration::from_secs(10)))?;
        eprintln!(
            "exit code {} after {:.2} ms, reset of {} pages {:.2} ms{}",
            end.code,
            milliseconds(start.elapsed()),
            end.reset.pages,
            milliseconds(end.reset.time),
            end.message
        );
    }
    Ok(())
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
