//! The neighbour: the speed of its runs during and after an attack, compared with a daemon without
//! an attack. Runs on both alternate, so the load of the machine slows both.

use super::Test;
use hartline_tests::daemon::{Answer, Daemon};
use hartline_tests::{Result, compile};
use serde_json::json;
use std::fs;
use std::time::{Duration, Instant};

pub const TESTS: &[(&str, Test)] = &[("no attack", no_attack)];

/// The number of runs, of which the fastest counts. Load from other tests slows single runs, not
/// all.
const RUNS: usize = 12;
/// The largest allowed ratio of the fastest run to the fastest run without an attack.
const SLOWDOWN: u32 = 3;

/// A daemon with two tenants, each with its key.
pub struct Scene {
    /// The daemon.
    pub daemon: Daemon,
    attacker: String,
    neighbour: String,
    /// The id of the neighbour's program.
    program: String,
    /// A daemon without an attack, and the id of the same program there.
    quiet: (Daemon, String),
}

impl Scene {
    /// Starts a daemon with these lines of configuration, and one without an attack.
    ///
    /// # Errors
    /// A daemon does not start.
    pub fn start(configuration: &str) -> Result<Self> {
        Self::with(Daemon::start(configuration)?)
    }

    /// Makes a scene of a running daemon, and starts one without an attack.
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
        let service = fs::read(compile::service()?)?;
        let quiet = Daemon::start("pool = 2")?;
        let program = quiet.push("name=service", &service)?;
        let program = program["id"].as_str().unwrap_or_default().to_owned();
        let mut scene = Self {
            attacker: key("attacker")?,
            neighbour: key("neighbour")?,
            program: String::new(),
            quiet: (quiet, program),
            daemon,
        };
        scene.program = scene.push(&scene.neighbour, "name=service", &service)?;
        Ok(scene)
    }

    /// Sends a request of the attacker, with JSON if it has a body.
    ///
    /// # Errors
    /// There is no answer.
    pub fn attack(&self, method: &str, path: &str, body: &[u8]) -> Result<Answer> {
        self.request(&self.attacker, method, path, body)
    }

    /// Sends a request of the neighbour, with JSON if it has a body.
    ///
    /// # Errors
    /// There is no answer.
    pub fn as_neighbour(&self, method: &str, path: &str, body: &[u8]) -> Result<Answer> {
        self.request(&self.neighbour, method, path, body)
    }

    /// Returns the id of the neighbour's program, which greets if it has no arguments.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Uploads a program as the attacker and waits until it is prepared. Result: its id.
    ///
    /// # Errors
    /// The daemon refuses the program.
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

    /// Checks that the neighbour's runs are as fast as runs without an attack.
    ///
    /// # Errors
    /// The runs are slower than [`SLOWDOWN`] allows, refused, or wrong.
    pub fn neighbour_is_well(&self, when: &str) -> Result<()> {
        let (quiet, program) = &self.quiet;
        let (mut attacked, mut undisturbed) = (Duration::MAX, Duration::MAX);
        for _ in 0..RUNS {
            let begin = Instant::now();
            let answer = self.as_neighbour("POST", "/v1/runs", &request(&self.program));
            attacked = attacked.min(begin.elapsed());
            greets(answer?)?;
            let begin = Instant::now();
            let answer = quiet.request("POST", "/v1/runs", &request(program));
            undisturbed = undisturbed.min(begin.elapsed());
            greets(answer?)?;
        }
        let ratio = attacked.as_secs_f64() / undisturbed.as_secs_f64();
        println!("{when}: the neighbour's fastest run takes {ratio:.2} of {undisturbed:?}");
        match attacked <= undisturbed * SLOWDOWN {
            true => Ok(()),
            false => Err(format!("{when}: {attacked:?}, without an attack {undisturbed:?}").into()),
        }
    }

    /// Checks the state after the attack: the neighbour's runs are as fast as without it, the
    /// daemon restarts, and then its runs are as fast again.
    ///
    /// # Errors
    /// One of these does not hold.
    pub fn end(mut self) -> Result<()> {
        self.neighbour_is_well("after the attack")?;
        self.daemon.terminate()?;
        self.daemon.restart()?;
        self.neighbour_is_well("after a restart")
    }

    /// Sends a request with an `Authorization` header, and with JSON if it has a body.
    ///
    /// # Errors
    /// There is no answer.
    pub fn request(&self, key: &str, method: &str, path: &str, body: &[u8]) -> Result<Answer> {
        let headers = [("Content-Type", "application/json"), ("Authorization", key)];
        self.daemon.request_with(method, path, &headers, body)
    }

    /// Uploads a program with an `Authorization` header and waits until it is prepared. Result: its
    /// id.
    ///
    /// # Errors
    /// The daemon refuses the program.
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

fn request(program: &str) -> Vec<u8> {
    json!({ "program": program }).to_string().into_bytes()
}

/// Checks that the outcome of a run is the program's greeting.
fn greets(answer: Answer) -> Result<()> {
    let outcome = answer.expect(200)?.json();
    match outcome["stdout"]["text"] == "hello, world\n" {
        true => Ok(()),
        false => Err(format!("the neighbour's run: {outcome}").into()),
    }
}

/// Checks that the measurement itself passes without an attack.
fn no_attack() -> Result<()> {
    Scene::start("pool = 2")?.end()
}
