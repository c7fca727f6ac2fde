//! Services that are killed.

use super::service::{self, PORT, statistics};
use super::{Place, check_counters, expect};
use hartline_tests::Result;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

/// The service is killed at different times from its start until its VMs are ready: no process and no port is left.
pub fn restoring(place: &Place) -> Result<()> {
    let mut unready = 0;
    for delay in (0..=60).step_by(4).map(Duration::from_millis) {
        let mut command = service::command(&place.snapshot(), &["--ephemeral", "--workers", "2"])?;
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        thread::sleep(delay);
        child.kill()?;
        // Each process that had standard error open has ended.
        let outcome = child.wait_with_output()?;
        unready += usize::from(outcome.stderr.is_empty());
        drop(TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))?);
    }
    if unready == 0 {
        return Err("each service was ready before it was killed".into());
    }
    let service = place.serve(&["--ephemeral", "--workers", "2"])?;
    expect("/count", "1")?;
    expect("/keep/word", "nothing nothing")?;
    let statistics = statistics(&service.end(libc::SIGTERM)?)?;
    check_counters(&statistics, [2, 0, 0])
}
