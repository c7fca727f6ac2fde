//! Error messages of the commands: one line on standard error, and an exit code.

use hartline_vmm::report::FAILURE;
use std::error::Error;

/// Exit code of mistakes in the command line.
pub const USAGE: u8 = 2;

/// A mistake in the command line that only becomes apparent when all arguments are known.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Mistake(#[from] anyhow::Error);

/// The exit code for an error: [`USAGE`] for mistakes in the command line, [`FAILURE`] otherwise.
#[must_use]
pub fn exit_code(error: &anyhow::Error) -> u8 {
    match error.is::<Mistake>() {
        true => USAGE,
        false => FAILURE,
    }
}

/// Formats a mistake in the arguments as one line, which ends with the command that shows help.
#[must_use]
pub fn mistake(error: &clap::Error, help: &str) -> String {
    let text = error.render().to_string();
    // Missing arguments are listed on indented lines.
    let lines = text.lines().take_while(|line| !line.is_empty());
    let line = lines.map(str::trim).collect::<Vec<_>>().join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    let similar = suggestion(error).map(|name| format!("; did you mean {name}?"));
    format!("{line}{} ({help} says more)", similar.unwrap_or_default())
}

/// The name that a caller may have meant.
fn suggestion(error: &clap::Error) -> Option<String> {
    use clap::error::{ContextKind, ContextValue};
    let kinds = [
        ContextKind::SuggestedArg,
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedValue,
    ];
    kinds.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(name) => Some(name.clone()),
        ContextValue::Strings(names) => names.first().cloned(),
        _ => None,
    })
}

/// Formats an error and its causes as one line. If an error contains the text of its cause, the
/// text is not repeated.
#[must_use]
pub fn one_line(error: &(dyn Error + 'static)) -> String {
    let mut line = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        next = error.source();
        let cause = error.to_string().replace('\n', " ");
        if line.is_empty() {
            line = cause;
        } else if !line.ends_with(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("a file")]
    struct Outer(#[source] io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("a file: {0}")]
    struct Telling(#[source] io::Error);

    #[test]
    fn causes_are_told_once() {
        let cause = || io::Error::other("two\nlines");
        assert_eq!(one_line(&Outer(cause())), "a file: two lines");
        assert_eq!(one_line(&Telling(io::Error::other("no"))), "a file: no");
    }

    #[test]
    fn mistakes_have_their_own_exit_code() {
        let mistake = || anyhow::Error::from(Mistake(anyhow::anyhow!("--cpus 0: no")));
        assert_eq!(exit_code(&mistake()), USAGE);
        assert_eq!(one_line(mistake().as_ref()), "--cpus 0: no");
        assert_eq!(exit_code(&mistake().context("--pin 1")), USAGE);
        assert_eq!(exit_code(&anyhow::anyhow!("no")), FAILURE);
    }

    #[test]
    fn a_mistake_has_the_similar_name() {
        let flag = clap::Arg::new("follow")
            .long("follow")
            .action(clap::ArgAction::SetTrue);
        let command = clap::Command::new("c")
            .arg(flag)
            .subcommand(clap::Command::new("logs"));
        for (argument, name) in [("--folow", "--follow"), ("lgos", "logs")] {
            let error = command
                .clone()
                .try_get_matches_from(["c", argument])
                .unwrap_err();
            let line = mistake(&error, "c --help");
            assert!(
                line.contains(&format!("; did you mean {name}? (")),
                "{line}"
            );
        }
    }

    #[test]
    fn a_mistake_is_one_line() {
        let command = clap::Command::new("c").arg(clap::Arg::new("FILE").required(true));
        let error = command.try_get_matches_from(["c"]).unwrap_err();
        let line = mistake(&error, "c --help");
        assert!(!line.contains('\n') && line.contains("<FILE>"), "{line}");
        assert!(line.ends_with(" (c --help says more)"), "{line}");
    }
}
