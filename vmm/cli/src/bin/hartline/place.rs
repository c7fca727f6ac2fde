//! Where a program finds itself: its environment, user, directory and host name, with the options of
//! docker. `run`, `create` and `submit` have them.

use anyhow::Context;
use hartline_cli::command_line::Mistake;
use std::path::PathBuf;

/// Options of the environment of a program.
#[derive(Debug, clap::Args)]
pub struct Environment {
    /// Set an environment variable (repeatable)
    #[arg(short = 'e', long = "env", value_name = "NAME=VALUE", value_parser = pair)]
    given: Vec<(String, String)>,

    /// Set the environment variables of a file, which has NAME=VALUE on each line, and comments that
    /// begin with # (repeatable); --env overrides them
    #[arg(long = "env-file", value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl Environment {
    /// The variables; the last value of a variable counts.
    ///
    /// # Errors
    /// A file cannot be read, or a line of it is wrong.
    pub fn pairs(&self) -> anyhow::Result<Vec<(String, String)>> {
        let mut pairs = Vec::new();
        for file in &self.files {
            let name = || format!("--env-file {}", file.display());
            let text = std::fs::read_to_string(file).with_context(name)?;
            let read = read(&text).map_err(Mistake::from).with_context(name)?;
            pairs.extend(read);
        }
        pairs.extend(self.given.iter().cloned());
        Ok(pairs)
    }
}

/// The variables in a file.
fn read(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let lines = (1..).zip(text.lines());
    let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let read = lines.map(|(number, line)| pair(line).with_context(|| format!("line {number}")));
    read.collect()
}

/// Parses a variable with its value.
pub fn pair(text: &str) -> anyhow::Result<(String, String)> {
    let (name, value) = text.split_once('=').context("needs the form NAME=VALUE")?;
    anyhow::ensure!(!name.is_empty(), "the name is empty");
    Ok((name.to_owned(), value.to_owned()))
}

/// Options of the program's place in its VM.
#[derive(Debug, clap::Args)]
pub struct Place {
    /// User and group of the program in its VM, as numbers (default group: 0)
    #[arg(short, long, value_name = "UID[:GID]", default_value = "0", value_parser = user)]
    pub user: (u32, u32),

    /// Directory in which the program starts (default: /)
    #[arg(short, long, value_name = "PATH", value_parser = directory)]
    pub workdir: Option<String>,

    /// Host name of the VM, which is also in HOSTNAME
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    pub hostname: Option<String>,

    /// Mount the root file system read-only
    #[arg(long)]
    pub read_only: bool,
}

/// Parses a user and a group.
///
/// # Errors
/// The form.
pub fn user(text: &str) -> Result<(u32, u32), &'static str> {
    let (user, group) = text.split_once(':').unwrap_or((text, "0"));
    let number = |text: &str| {
        let is_plain = text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| is_plain)
    };
    let ids = number(user).zip(number(group));
    ids.ok_or("needs the form UID or UID:GID, with numbers of at most 9 digits")
}

/// Parses an absolute path.
///
/// # Errors
/// The rule.
pub fn directory(text: &str) -> Result<String, &'static str> {
    match text.starts_with('/') {
        true => Ok(text.to_owned()),
        false => Err("must begin with /"),
    }
}

fn host_name(text: &str) -> Result<String, &'static str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    match (1..=63).contains(&text.len()) && text.bytes().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("must be 1 to 63 letters, digits, dots and hyphens"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_variables_and_comments() {
        let is = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let pairs = read("# comment\nA=1\n\nB= two # words\nC=a=b\n").unwrap();
        assert_eq!(
            pairs,
            [is("A", "1"), is("B", " two # words"), is("C", "a=b")]
        );
        let error = format!("{:#}", read("A=1\nB\n").unwrap_err());
        assert_eq!(error, "line 2: needs the form NAME=VALUE");
        assert!(read("=1").is_err());
    }

    #[test]
    fn users_are_numbers() {
        assert_eq!(user("1000"), Ok((1000, 0)));
        assert_eq!(user("1:2"), Ok((1, 2)));
        for bad in ["", "root", "1:", ":1", "-1", "+1", "1:2:3", "4294967295"] {
            assert!(user(bad).is_err(), "{bad}");
        }
        assert!(directory("tmp").is_err() && directory("/tmp").is_ok());
        assert!(host_name("a b").is_err() && host_name("web-1").is_ok());
    }
}
