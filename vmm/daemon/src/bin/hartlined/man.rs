//! `hartlined man`: the manual pages of the daemon and of its configuration file.

use clap_mangen::Man;
use roff::{Inline, Roff, bold, italic, roman};
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// The configuration file of the package, which describes each setting and shows its default.
const EXAMPLE: &str = include_str!("../../../../../deploy/hartlined.toml");
/// Files, and what they are.
const FILES: [(&str, &str); 3] = [
    (
        "/etc/hartline/hartlined.toml",
        "Configuration. Without --config it is read if it is there.",
    ),
    (
        "/var/lib/hartline",
        "Database, uploads, translations, volumes, snapshots and logs of machines.",
    ),
    (
        "/run/hartline/hartlined.sock",
        "Socket of the API. Root needs no key there.",
    ),
];
/// Signals, and what they do.
const SIGNALS: [(&str, &str); 2] = [
    (
        "SIGTERM, SIGINT",
        "End the daemon. Machines and asynchronous runs go on.",
    ),
    (
        "SIGHUP",
        "Read the configuration and the certificates again. The log names settings that need a restart.",
    ),
];

/// A paragraph of the example: what the settings are, and their lines.
struct Settings {
    description: String,
    lines: Vec<&'static str>,
}

/// Writes all pages into a directory, which is made if necessary.
///
/// # Errors
/// The pages cannot be written.
pub fn write(directory: &Path, mut command: clap::Command) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    command.build();
    for subcommand in command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help")
    {
        let name = subcommand.get_display_name().unwrap_or_default().to_owned();
        let mut page = File::create(directory.join(format!("{name}.8")))?;
        man(subcommand.clone()).render(&mut page)?;
    }
    let mut page = File::create(directory.join("hartlined.8"))?;
    man(command).render(&mut page)?;
    let mut more = Roff::new();
    list(&mut more, "FILES", &FILES);
    list(&mut more, "SIGNALS", &SIGNALS);
    more.control("SH", ["SEE ALSO"]);
    more.text([
        bold("hartlined.toml"),
        roman("(5), "),
        bold("hartline"),
        roman("(1)"),
    ]);
    more.to_writer(&mut page)?;
    configuration().to_writer(&mut File::create(directory.join("hartlined.toml.5"))?)
}

fn man(command: clap::Command) -> Man {
    Man::new(command).section("8")
}

fn list(page: &mut Roff, title: &str, entries: &[(&str, &str)]) {
    page.control("SH", [title]);
    for (name, meaning) in entries {
        page.control("TP", []);
        page.text([bold(*name)]);
        page.text([roman(*meaning)]);
    }
}

/// The page of the configuration file.
fn configuration() -> Roff {
    let mut page = Roff::new();
    page.control("TH", ["hartlined.toml", "5"]);
    page.control("SH", ["NAME"]);
    page.text([roman("hartlined.toml - configuration of hartlined")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([
        roman("The file is TOML. Every setting has a default, which is shown here. "),
        roman("Where the text says that there is none, the value is an example. "),
        bold("hartlined"),
        roman(" refuses a file with unknown settings or invalid values. It reads the file again at SIGHUP."),
    ]);
    page.control("SH", ["SETTINGS"]);
    for Settings { description, lines } in settings() {
        page.control("TP", []);
        for (number, line) in lines.iter().enumerate() {
            if number > 0 {
                page.control("TQ", []);
            }
            page.text(setting(line));
        }
        page.text([roman(description)]);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("hartlined"), roman("(8)")]);
    page
}

/// A line of the example: the name in bold, the value in italics.
fn setting(line: &str) -> Vec<Inline> {
    match line.split_once(" = ") {
        Some((name, value)) => vec![bold(name), roman(" = "), italic(value)],
        None => vec![bold(line)],
    }
}

/// The paragraphs of the example that have settings.
fn settings() -> impl Iterator<Item = Settings> {
    EXAMPLE.split("\n\n").filter_map(|paragraph| {
        let mut description = Vec::new();
        let mut lines = Vec::new();
        for line in paragraph.lines() {
            match (line.strip_prefix("# "), line.strip_prefix('#')) {
                (Some(text), _) => description.push(text),
                (None, Some(line)) => lines.push(line),
                (None, None) => {}
            }
        }
        let description = description.join(" ");
        (!lines.is_empty()).then_some(Settings { description, lines })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn there_is_a_page_for_each_command_and_the_configuration() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), crate::Arguments::command()).unwrap();
        let page = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        for name in ["hartlined-backup.8", "hartlined-restore.8"] {
            assert!(page(name).contains(".SH SYNOPSIS"), "{name}");
        }
        let main = page("hartlined.8");
        assert!(
            main.contains("SIGHUP") && main.contains("hartlined\\-backup(8)"),
            "{main}"
        );
        let configuration = page("hartlined.toml.5");
        let names = EXAMPLE
            .lines()
            .filter_map(|line| line.strip_prefix('#')?.split_once(" = "));
        let names: Vec<_> = names.filter(|(name, _)| !name.contains(' ')).collect();
        assert!(names.len() > 40, "{names:?}");
        for (name, _) in names {
            assert!(
                configuration.contains(&format!("\\fB{name}\\fR = ")),
                "{name}"
            );
        }
    }
}
