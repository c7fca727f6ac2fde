//! What happens to the daemon.

use hartline_tests::Result;
use hartline_tests::daemon::Daemon;
use hartline_tests::random::Random;
use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The configuration at the start. Programs are interpreted, so that processors are left for more.
pub const CONFIGURATION: &str = "pool = 2\ntranslation_timeout_s = 1\nkeep_runs_s = 86400";
/// Another configuration, which a running daemon can take.
const OTHER: &str = "pool = 2\ntranslation_timeout_s = 1\nkeep_runs_s = 80000";

/// Does harm, and counts it.
pub struct Harm {
    random: Random,
    daemons: u64,
    stops: u64,
    /// VMMs that were killed; some of them waited for a program.
    pub vmms: u64,
    reloads: u64,
    /// Times at which the disk was full, ms since the epoch.
    full: Vec<(i64, i64)>,
}

impl Harm {
    /// Harm that depends on a seed.
    pub fn new(random: Random) -> Self {
        Self {
            random,
            daemons: 0,
            stops: 0,
            vmms: 0,
            reloads: 0,
            full: Vec::new(),
        }
    }

    /// Waits a while, and does one thing.
    ///
    /// # Errors
    /// The daemon does not start again, or not end.
    pub fn once(&mut self, daemon: &mut Daemon) -> Result<()> {
        thread::sleep(Duration::from_millis(self.random.below(1500)));
        match self.random.below(6) {
            0 => {
                self.daemons += 1;
                daemon.kill()?;
                daemon.restart()
            }
            1 => {
                self.daemons += 1;
                // The other process ends with it.
                kill(daemon.service()?);
                daemon.await_end()?;
                daemon.restart()
            }
            2 => {
                self.stops += 1;
                daemon.terminate()?;
                daemon.restart()
            }
            3 => {
                self.reloads += 1;
                let configuration = self.random.pick(&[CONFIGURATION, OTHER]);
                daemon.configure(configuration)?;
                daemon.hang_up();
                Ok(())
            }
            4 => self.fill(daemon),
            _ => {
                let jailed = daemon.jailed();
                if !jailed.is_empty() {
                    self.vmms += 1;
                    kill(self.random.pick(&jailed));
                }
                Ok(())
            }
        }
    }

    /// Fills the disk, and empties it a little later.
    fn fill(&mut self, daemon: &Daemon) -> Result<()> {
        let path = daemon.data().join("filler");
        let start = now();
        let mut file = File::create(&path)?;
        let block = vec![0; 1 << 16];
        while file.write_all(&block).is_ok() {}
        thread::sleep(Duration::from_millis(100 + self.random.below(1000)));
        // A child of this process that has not begun its program yet may have it open too.
        file.set_len(0)?;
        fs::remove_file(&path)?;
        self.full.push((start, now()));
        Ok(())
    }

    /// Whether the disk was full at some time from `start` to `end`, ms since the epoch.
    pub fn was_full(&self, start: i64, end: i64) -> bool {
        self.full
            .iter()
            .any(|full| full.0 <= end && start <= full.1)
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kills of the daemon, {} stops, {} kills of jailed processes, {} reloads, a full disk at {:?}",
            self.daemons, self.stops, self.vmms, self.reloads, self.full
        )
    }
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as i64)
}

fn kill(pid: u32) {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
}
