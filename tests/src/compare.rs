//! One run of a program, under Hartline and under the reference, and the comparison.

use crate::hartline::{self, ENVIRONMENT};
use crate::process::{self, Outcome};
use crate::{Result, reference, tree};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program, and the way to run it.
#[derive(Debug, Clone)]
pub struct Run {
    /// The program, a file on this machine.
    pub program: PathBuf,
    /// The guest's root directory and the program's path in it; `None`: the program alone.
    pub root: Option<(PathBuf, String)>,
    /// Arguments after the program's name.
    pub args: Vec<String>,
    /// More environment variables.
    pub env: Vec<(String, String)>,
    /// Standard input.
    pub stdin: Vec<u8>,
}

impl Run {
    /// Makes a run of `program ARGS…` with empty input.
    pub fn new<S: Into<String>>(program: &Path, args: impl IntoIterator<Item = S>) -> Self {
        Self {
            program: program.to_path_buf(),
            root: None,
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            stdin: Vec::new(),
        }
    }

    /// Runs the program in the root directory `root`, at `path` inside it.
    #[must_use]
    pub fn in_root(mut self, root: &Path, path: &str) -> Self {
        self.root = Some((root.to_path_buf(), path.to_owned()));
        self
    }

    /// Sets the standard input.
    #[must_use]
    pub fn with_stdin(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.stdin = input.into();
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Translates the program and runs it under Hartline, with more `options` of `hartline run`.
    /// `HARTLINE_INTERPRET=1` in the environment selects the interpreter alone, to tell whether the
    /// translator causes a failure. With `HARTLINE_COLD=1`, each run has an empty cache.
    ///
    /// # Errors
    /// The translation failed, or the run hangs.
    pub fn hartline(&self, options: &[&str]) -> Result<Outcome> {
        let is_set = |name| env::var_os(name).is_some_and(|value| value == "1");
        if is_set("HARTLINE_INTERPRET") {
            let options = [options, &["--interpret"]].concat();
            return process::run(&mut self.hartline_command(&options)?, &self.stdin);
        }
        if is_set("HARTLINE_COLD") {
            return self.unprepared(options);
        }
        hartline::translate(&self.program)?;
        process::run(&mut self.hartline_command(options)?, &self.stdin)
    }

    /// Runs the program under Hartline with the interpreter alone.
    ///
    /// # Errors
    /// The run hangs.
    pub fn interpreted(&self) -> Result<Outcome> {
        process::run(&mut self.hartline_command(&["--interpret"])?, &self.stdin)
    }

    /// Runs the program under Hartline with nothing translated before, with more `options`: the
    /// program starts in the interpreter and switches to translations as they are made.
    ///
    /// # Errors
    /// The run hangs.
    pub fn unprepared(&self, options: &[&str]) -> Result<Outcome> {
        let cache = tree::Scratch::new()?;
        let mut command = self.hartline_command(options)?;
        command.env("HARTLINE_CACHE", cache.path());
        process::run(&mut command, &self.stdin)
    }

    /// Returns the command of [`Run::hartline`].
    ///
    /// # Errors
    /// There is no `hartline`.
    pub fn hartline_command(&self, options: &[&str]) -> Result<Command> {
        let mut command = hartline::command("run")?;
        command.args(options);
        for (name, value) in &self.env {
            command.arg("--env").arg(format!("{name}={value}"));
        }
        match &self.root {
            Some((root, path)) => command.arg("--rootfs").arg(root).arg("--").arg(path),
            None => command.arg("--").arg(&self.program),
        };
        command.args(&self.args);
        Ok(command)
    }

    /// Runs the program under the reference. A root directory is copied first, because the program
    /// may change it.
    ///
    /// # Errors
    /// There is no reference, or the run hangs.
    pub fn reference(&self) -> Result<Outcome> {
        let copy = match &self.root {
            Some((root, _)) => Some(tree::Scratch::copy_of(root)?),
            None => None,
        };
        process::run(
            &mut self.reference_command(copy.as_ref().map(tree::Scratch::path))?,
            &self.stdin,
        )
    }

    /// Returns the command of [`Run::reference`], in the root directory `root` if it has one.
    ///
    /// # Errors
    /// There is no reference.
    pub fn reference_command(&self, root: Option<&Path>) -> Result<Command> {
        let mut command = match (&self.root, root) {
            (Some((_, path)), Some(root)) => reference::command_in_root(root, path)?,
            _ => reference::command(&self.program)?,
        };
        command.args(&self.args).env_clear().envs(ENVIRONMENT);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Fails unless Hartline and the reference write the same and end the same way.
    ///
    /// # Errors
    /// They differ; the message shows where.
    pub fn compare(&self) -> Result<()> {
        check_equal(&self.reference()?, &self.hartline(&[])?)
    }
}

/// Fails unless `actual` (Hartline) equals `expected` (the reference). Standard error is not
/// compared after a signal, since both report that in their own words.
///
/// # Errors
/// The outputs or exit codes differ; the message shows where.
pub fn check_equal(expected: &Outcome, actual: &Outcome) -> Result<()> {
    let told = || format!("standard error of hartline: {}", tail(&actual.stderr));
    if expected.code != actual.code {
        return Err(format!(
            "exit code {}, expected {}; {}",
            actual.code,
            expected.code,
            told()
        )
        .into());
    }
    if let Some(message) = difference("standard output", &expected.stdout, &actual.stdout) {
        return Err(format!("{message}\n{}", told()).into());
    }
    if expected.code <= 128
        && let Some(message) = difference("standard error", &expected.stderr, &actual.stderr)
    {
        return Err(message.into());
    }
    Ok(())
}

/// Describes the first difference between two texts.
fn difference(what: &str, expected: &[u8], actual: &[u8]) -> Option<String> {
    if expected == actual {
        return None;
    }
    let at = expected
        .iter()
        .zip(actual)
        .take_while(|(a, b)| a == b)
        .count();
    let line = 1 + expected[..at].iter().filter(|byte| **byte == b'\n').count();
    let from = expected[..at]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |n| n + 1)
        .max(at.saturating_sub(100));
    let excerpt = |bytes: &[u8]| {
        String::from_utf8_lossy(&bytes[from..bytes.len().min(at + 100)]).into_owned()
    };
    Some(format!(
        "{what}: {} bytes, expected {}; first difference at byte {at}, line {line}:\n  expected {:?}\n  actual   {:?}",
        actual.len(),
        expected.len(),
        excerpt(expected),
        excerpt(actual),
    ))
}

/// Returns the last part of a long text.
fn tail(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(2000)..]).into_owned()
}
