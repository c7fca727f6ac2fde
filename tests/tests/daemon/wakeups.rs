//! Requests to a sleeping machine on a busy host: each must wake it.

use super::exec::{ask, start};
use super::files::FILES;
use super::{check, tar};
use hartline_tests::Result;
use hartline_tests::daemon::Daemon;
use serde_json::json;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

/// Clients at the same time.
const CLIENTS: usize = 4;
/// Requests of each client to copy a file, and to get it back. `HARTLINE_WAKEUPS` is another number.
const ROUNDS: usize = 50;
/// Processes that compute meanwhile.
const BUSY: usize = 8;

/// Processes that compute until this is dropped.
struct Busy(Vec<Child>);

impl Busy {
    fn start(count: usize) -> Result<Self> {
        let mut busy = Self(Vec::new());
        for _ in 0..count {
            let mut shell = Command::new("sh");
            busy.0
                .push(shell.args(["-c", "while :; do :; done"]).spawn()?);
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Both fail only if the process has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Files are copied to and from a machine that sleeps, and commands are run in it. What none of them wakes,
/// the daemon reports after its `idle_timeout_s`.
pub fn of_a_sleeping_machine() -> Result<()> {
    let daemon = start()?;
    let rounds = match std::env::var("HARTLINE_WAKEUPS") {
        Ok(number) => number.parse()?,
        Err(_) => ROUNDS,
    };
    let _busy = Busy::start(BUSY)?;
    let longest = thread::scope(|scope| -> Result<Vec<Duration>> {
        let daemon = &daemon;
        let clients = (0..CLIENTS).map(|client| scope.spawn(move || serve(daemon, client, rounds)));
        let clients: Vec<_> = clients.collect();
        let results = clients.into_iter().map(|client| client.join());
        results
            .map(|result| result.map_err(|_| "a panic")?)
            .collect()
    })?;
    if rounds > ROUNDS {
        println!("the longest requests of each client: {longest:?}");
    }
    Ok(())
}

/// Makes the requests of a client. Result: the longest time of one.
fn serve(daemon: &Daemon, client: usize, rounds: usize) -> Result<Duration> {
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        let name = format!("file-{client}");
        let contents = format!("{client} {round}").repeat(1 + round % 500);
        let mut timed = |work: &dyn Fn() -> Result<()>| -> Result<()> {
            let started = Instant::now();
            let result = work();
            longest = longest.max(started.elapsed());
            result.map_err(|error| format!("client {client}, round {round}: {error:?}").into())
        };
        timed(&|| {
            let archive = tar(&[(&name, b'0', "", contents.as_bytes())]);
            let put = daemon.request("PUT", &format!("{FILES}?path=/tmp"), &archive)?;
            put.expect(204).map(drop)
        })?;
        timed(&|| {
            let path = format!("{FILES}?path=/tmp/{name}");
            let archive = daemon.request("GET", &path, b"")?.expect(200)?.body;
            let found = archive.get(512..512 + contents.len());
            check(
                "the file",
                found == Some(contents.as_bytes()),
                &archive.len(),
            )
        })?;
        if round % 10 == 0 {
            timed(&|| {
                let ended = ask(
                    daemon,
                    &json!({ "command": ["cat", format!("/tmp/{name}")] }),
                )?;
                check(
                    "the command",
                    ended["stdout"]["text"] == contents.as_str(),
                    &ended,
                )
            })?;
        }
    }
    Ok(longest)
}
