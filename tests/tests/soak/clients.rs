//! Clients that make runs and machines, and note what the daemon has acknowledged.

use hartline_tests::daemon::{Answer, Client, Daemon};
use hartline_tests::random::Random;
use hartline_tests::{Result, paths, tar};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Pause before a request is repeated.
const PAUSE: Duration = Duration::from_millis(50);

/// The right end of a run or machine.
#[derive(Debug, Clone)]
pub struct Expected {
    /// Exit code.
    pub code: u64,
    /// Standard output.
    pub output: String,
}

/// All clients.
pub struct Clients {
    client: Client,
    is_over: AtomicBool,
    /// Paths of acknowledged objects.
    acknowledged: Mutex<BTreeMap<String, Expected>>,
    /// Answers that are never right.
    wrong: Mutex<Vec<String>>,
}

/// Everything that the clients know at their end.
pub struct Acknowledged {
    /// What the daemon has acknowledged, by its path in the API.
    pub objects: BTreeMap<String, Expected>,
    /// Answers that were wrong.
    pub wrong: Vec<String>,
}

impl Clients {
    /// Clients of a daemon, with a program for all of them.
    ///
    /// # Errors
    /// The daemon refuses the program.
    pub fn new(daemon: &Daemon) -> Result<Self> {
        let busybox = fs::read(paths::busybox())?;
        let links = ["sh", "sleep", "seq"].map(|name| format!("bin/{name}"));
        let mut members = vec![("bin/busybox", b'0', "", &busybox[..])];
        members.extend(
            links
                .iter()
                .map(|link| (link.as_str(), b'2', "busybox", &b""[..])),
        );
        daemon.push("name=tools", &tar::tar(&members))?;
        Ok(Self {
            client: daemon.client(),
            is_over: AtomicBool::new(false),
            acknowledged: Mutex::default(),
            wrong: Mutex::default(),
        })
    }

    /// Lets the clients finish what they have begun.
    pub fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// What the clients know.
    pub fn into_acknowledged(self) -> Acknowledged {
        let inner = |poison: PoisonError<_>| poison.into_inner();
        Acknowledged {
            objects: self.acknowledged.into_inner().unwrap_or_else(inner),
            wrong: self
                .wrong
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Makes one run or machine after another.
    pub fn work(&self, number: u64, mut random: Random) {
        let mut count = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            let key = format!("{number}-{count}");
            count += 1;
            let lines = random.below(2000);
            let code = random.below(100);
            let output = (1..=lines)
                .map(|line| format!("{line}\n"))
                .collect::<String>();
            let expected = Expected {
                code,
                output: format!("{output}{key}\n"),
            };
            let script = format!(
                "seq 1 {lines}; sleep 0.{}; echo {key}; exit {code}",
                random.below(6)
            );
            let mut body = json!({ "program": "tools", "path": "/bin/sh", "args": ["-c", script],
                "memory": 64 << 20 });
            match random.below(4) {
                0 => self.run(&key, &body, &expected),
                1 => {
                    body["start"] = true.into();
                    self.make("/v1/machines", &key, &body, expected);
                }
                _ => {
                    body["wait"] = false.into();
                    self.make("/v1/runs", &key, &body, expected);
                }
            }
        }
    }

    /// Makes an object. The request is repeated, with its key, until it is acknowledged.
    fn make(&self, path: &str, key: &str, body: &Value, expected: Expected) {
        let body = body.to_string();
        loop {
            let answer = self
                .client
                .request("POST", path, Some(key), body.as_bytes());
            match answer.ok().filter(|answer| answer.json().is_object()) {
                Some(answer) if matches!(answer.status, 200..=202) => {
                    let path = format!("{path}/{}", answer.text("id"));
                    let mut all = self
                        .acknowledged
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    all.insert(path, expected);
                    return;
                }
                Some(answer) if !is_refusal(&answer) => return self.note(key, &answer),
                _ => thread::sleep(PAUSE),
            }
        }
    }

    /// Makes a run whose outcome is the answer. There is no outcome if the daemon is killed.
    fn run(&self, key: &str, body: &Value, expected: &Expected) {
        let body = body.to_string();
        let answer = self
            .client
            .request("POST", "/v1/runs", None, body.as_bytes());
        let Some(answer) = answer.ok().filter(|answer| answer.json().is_object()) else {
            return thread::sleep(PAUSE);
        };
        let outcome = answer.json();
        let is_right = outcome["exit_code"] == expected.code
            && outcome["stdout"]["text"] == expected.output.as_str();
        let message = outcome["message"].as_str().unwrap_or_default();
        let is_killed = message.contains(super::verdict::KILLED);
        if !is_right && !is_killed && !is_refusal(&answer) {
            self.note(key, &answer);
        }
    }

    fn note(&self, key: &str, answer: &Answer) {
        let body = String::from_utf8_lossy(&answer.body);
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.push(format!("{key}: {} {body:.2000}", answer.status));
    }
}

/// Whether the daemon has refused a request because it is being stopped or the disk is full.
fn is_refusal(answer: &Answer) -> bool {
    matches!(answer.status, 429 | 503 | 507)
}
