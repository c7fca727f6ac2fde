//! The tenant next door: how fast its runs are before, during and after an attack.

use super::Test;
use hartline_tests::daemon::{Answer, Daemon};
use hartline_tests::{Result, compile};
use serde_json::json;
use std::fs;
use std::time::{Duration, Instant};

pub const TESTS: &[(&str, Test)] = &[("no attack", no_attack)];

/// Runs of which the fastest counts. Load from other tests makes single runs slow, not all.
const RUNS: usize = 12;
/// The fastest run may take this many times as long as before the attack.
const SLOWDOWN: u32 = 3;

/// A daemon with two tenants, each with a key of its own.
pub struct Scene {
    /// The daemon.
    pub daemon: Daemon,
    attacker: String,
    neighbour: String,
    /// Id of the neighbour's program.
    program: String,
    /// The neighbour's fastest run before the attack.
    before: Duration,
}

impl Scene {
    /// Starts a daemon with these lines of configuration, and measures the neighbour's pace.
    ///
    /// # Errors
    /// The daemon does not come up.
    pub fn start(configuration: &str) -> Result<Self> {
        Self::with(Daemon::start(configuration)?)
    }

    /// The same with a daemon that was started already.
    ///
    /// # Errors
    /// The daemon refuses the tenants or the neighbour's program.
    pub fn with(daemon: Daemon) -> Result<Self> {
        let key = |tenant: &str| -> Result<String> {
            daemon.request("PUT", &format!("/v1/tenants/{tenant}"), b"{}")?;
            let path = format!("/v1/tenants/{tenant}/keys");
            let made = daemon.request("POST", &path, br#"{"scope":"write"}"#)?;
            Ok(format!("Bearer {}", made.expect(201)?.text("key")))
        };
        let mut scene = Self {
            attacker: key("attacker")?,
            neighbour: key("neighbour")?,
            program: String::new(),
            before: Duration::ZERO,
            daemon,
        };
        let service = fs::read(compile::service()?)?;
        scene.program = scene.push(&scene.neighbour, "name=service", &service)?;
        scene.before = scene.pace()?;
        Ok(scene)
    }

    /// A request of the attacker, with JSON if it has a body.
    ///
    /// # Errors
    /// There is no answer.
    pub fn attack(&self, method: &str, path: &str, body: &[u8]) -> Result<Answer> {
        self.request(&self.attacker, method, path, body)
    }

    /// Uploads a program as the attacker and waits until it is prepared. Result: its id.
    ///
    /// # Errors
    /// It is refused.
    pub fn attack_push(&self, query: &str, bytes: &[u8]) -> Result<String> {
        self.push(&self.attacker, query, bytes)
    }

    /// The attacker's `Authorization` header.
    pub fn attacker(&self) -> &str {
        &self.attacker
    }

    /// The neighbour's `Authorization` header.
    pub fn neighbour(&self) -> &str {
        &self.neighbour
    }

    /// The neighbour's fastest run now.
    ///
    /// # Errors
    /// A run is refused or wrong.
    pub fn pace(&self) -> Result<Duration> {
        let body = json!({ "program": self.program }).to_string();
        let mut fastest = Duration::MAX;
        for _ in 0..RUNS {
            let begin = Instant::now();
            let answer = self.request(&self.neighbour, "POST", "/v1/runs", body.as_bytes())?;
            fastest = fastest.min(begin.elapsed());
            let outcome = answer.expect(200)?.json();
            if outcome["stdout"]["text"] != "hello, world\n" {
                return Err(format!("the neighbour's run: {outcome}").into());
            }
        }
        Ok(fastest)
    }

    /// The neighbour's runs are as fast as before the attack.
    ///
    /// # Errors
    /// They are slower than [`SLOWDOWN`] allows.
    pub fn neighbour_is_well(&self, when: &str) -> Result<()> {
        let (before, now) = (self.before, self.pace()?);
        let ratio = now.as_secs_f64() / before.as_secs_f64();
        println!("{when}: the neighbour's fastest run takes {ratio:.2} of before ({before:?})");
        match now <= before * SLOWDOWN {
            true => Ok(()),
            false => Err(format!("{when}: {now:?}, before the attack {before:?}").into()),
        }
    }

    /// After the attack: the neighbour's runs are as fast as before it, the daemon restarts, and
    /// its runs are as fast again.
    ///
    /// # Errors
    /// One of these does not hold.
    pub fn end(mut self) -> Result<()> {
        self.neighbour_is_well("after the attack")?;
        self.daemon.terminate()?;
        self.daemon.restart()?;
        self.neighbour_is_well("after a restart")
    }

    /// A request with an `Authorization` header, and with JSON if it has a body.
    ///
    /// # Errors
    /// There is no answer.
    pub fn request(&self, key: &str, method: &str, path: &str, body: &[u8]) -> Result<Answer> {
        let headers = [("Content-Type", "application/json"), ("Authorization", key)];
        self.daemon.request_with(method, path, &headers, body)
    }

    /// Uploads a program with an `Authorization` header and waits until it is prepared. Result:
    /// its id.
    ///
    /// # Errors
    /// It is refused.
    pub fn push(&self, key: &str, query: &str, bytes: &[u8]) -> Result<String> {
        let path = format!("/v1/programs?{query}");
        let headers = [("Authorization", key)];
        let made = self.daemon.request_with("POST", &path, &headers, bytes)?;
        let id = made.text("id");
        let path = format!("/v1/programs/{id}");
        hartline_tests::daemon::until(|| {
            let program = self.request(key, "GET", &path, b"");
            program.is_ok_and(|program| ["ready", "failed"].contains(&&*program.text("state")))
        })?;
        Ok(id)
    }
}

/// The measure itself holds when nobody attacks.
fn no_attack() -> Result<()> {
    Scene::start("pool = 2")?.end()
}
