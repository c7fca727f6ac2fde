//! `hartline man`: the manual pages of all commands.

use anyhow::Context;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit codes of `hartline run` and of the client, and their meanings.
const EXIT_CODES: [(&str, &str); 5] = [
    ("0 to 255", "The program's own exit code."),
    ("128 + N", "Signal N ended the program."),
    ("124", "The time limit of --timeout ended the program."),
    (
        "125",
        "Hartline itself failed; standard error has one line with the reason.",
    ),
    ("2", "The command line has a mistake."),
];

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Directory for the pages, for example /usr/local/share/man/man1
    directory: PathBuf,
}

/// Writes a page for each command.
///
/// # Errors
/// The pages cannot be written.
pub fn main(arguments: &Arguments, command: clap::Command) -> anyhow::Result<ExitCode> {
    let directory = &arguments.directory;
    write(directory, command).with_context(|| directory.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn write(directory: &Path, command: clap::Command) -> std::io::Result<()> {
    fs::create_dir_all(directory)?;
    clap_mangen::generate_to(command, directory)?;
    let mut page = OpenOptions::new()
        .append(true)
        .open(directory.join("hartline.1"))?;
    let mut more = Roff::new();
    more.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in EXIT_CODES {
        more.control("TP", []);
        more.text([bold(code)]);
        more.text([roman(meaning)]);
    }
    more.control("SH", ["SEE ALSO"]);
    more.text([
        bold("hartlined"),
        roman("(8), "),
        bold("hartlined.toml"),
        roman("(5)"),
    ]);
    more.to_writer(&mut page)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, builder::Command};
    use std::fs;

    fn pages(prefix: &str, command: &Command, into: &mut Vec<String>) {
        let name = format!("{prefix}{}", command.get_name());
        let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        shown.for_each(|sub| pages(&format!("{name}-"), sub, into));
        into.push(name);
    }

    #[test]
    fn each_command_has_a_page() {
        let directory = tempfile::tempdir().unwrap();
        super::write(directory.path(), crate::Arguments::command()).unwrap();
        let mut names = Vec::new();
        pages("", &crate::Arguments::command(), &mut names);
        assert!(names.contains(&"hartline-run".to_owned()));
        for name in names {
            let page = fs::read_to_string(directory.path().join(format!("{name}.1")));
            let page = page.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(
                page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"),
                "{name}"
            );
        }
        let page = fs::read_to_string(directory.path().join("hartline.1")).unwrap();
        assert!(
            page.contains("EXIT STATUS") && page.contains("hartline\\-run(1)"),
            "{page}"
        );
    }
}
