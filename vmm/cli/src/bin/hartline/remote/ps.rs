//! `hartline ps` and `hartline runs`: lists of machines and of runs.

use super::{Format, Remote, done, list, table, wait};
use anyhow::anyhow;
use hartline_cli::client::{self, ClientError, Connection};
use hartline_cli::command_line::Mistake;
use hyper::Method;
use serde_json::Value;
use std::io::{self, Write};
use std::process::ExitCode;

/// Arguments of `hartline ps` and `hartline runs`.
#[derive(Debug, clap::Args)]
pub struct Ps {
    #[command(flatten)]
    remote: Remote,

    /// List only those in this state
    #[arg(long)]
    state: Option<String>,

    /// List only those with state=STATE, label=NAME=VALUE, program=PROGRAM (an id, the first digits
    /// of it, or a name) or name=NAME (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = filter)]
    filter: Vec<(String, String)>,

    /// Print ids only
    #[arg(short, long, conflicts_with_all = ["wide", "json"])]
    quiet: bool,

    /// Print whole ids, arguments and messages
    #[arg(long)]
    wide: bool,

    /// Print JSON, as --output json
    #[arg(long)]
    json: bool,
}

fn filter(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((key @ ("state" | "label" | "program" | "name"), value)) => {
            Ok((key.to_owned(), value.to_owned()))
        }
        _ => Err("needs the form state=STATE, label=NAME=VALUE, program=PROGRAM or name=NAME"),
    }
}

/// Prints the machines.
///
/// # Errors
/// The daemon does not answer.
pub fn ps(arguments: &Ps) -> anyhow::Result<ExitCode> {
    print(arguments, "/v1/machines", &MACHINES)
}

/// Prints the runs that the daemon keeps.
///
/// # Errors
/// The daemon does not answer.
pub fn runs(arguments: &Ps) -> anyhow::Result<ExitCode> {
    print(arguments, "/v1/runs", &RUNS)
}

fn print<const N: usize>(
    arguments: &Ps,
    path: &str,
    columns: &[Column; N],
) -> anyhow::Result<ExitCode> {
    let state = arguments.state.iter().map(|state| ("state", state));
    let filters = arguments.filter.iter();
    let filters = state.chain(filters.map(|(key, value)| (key.as_str(), value)));
    let (mut query, mut programs, mut names) = (String::new(), Vec::new(), Vec::new());
    for (key, value) in filters {
        match key {
            "program" => programs.push(value.clone()),
            "name" => names.push(value),
            // Machines have one state; of several labels, the API takes one.
            key if query.contains(&format!("{key}=")) => {
                let mistake = anyhow!("--filter: {key} is there twice");
                return Err(Mistake::from(mistake).into());
            }
            key => query.push_str(&format!("{key}={}&", client::escape(value))),
        }
    }
    wait(async {
        let mut daemon = arguments.remote.connect().await?;
        for program in &mut programs {
            *program = program_id(&mut daemon, program).await?;
        }
        let mut all = list(&mut daemon, path, query.trim_end_matches('&')).await?;
        all.retain(|entry| {
            let program = table::text(entry.get("spec").unwrap_or(&Value::Null), "program");
            let name = table::text(entry, "name");
            programs.iter().all(|id| program.starts_with(id.as_str()))
                && names.iter().all(|wanted| **wanted == name)
        });
        let mut remote = arguments.remote.clone();
        if arguments.json {
            remote.output = Format::Json;
        }
        if arguments.quiet {
            for entry in &all {
                writeln!(io::stdout(), "{}", table::text(entry, "id"))?;
            }
        } else if !remote.print_json(&all)? {
            let cell = |entry| std::array::from_fn(|column| (columns[column].cell)(entry));
            let mut rows: Vec<[String; N]> = all.iter().map(cell).collect();
            if !arguments.wide {
                narrow(columns, &mut rows);
            }
            let headings = std::array::from_fn(|column| columns[column].heading);
            table::print(headings, &rows)?;
        }
        done()
    })
}

/// The id of a program that is given by its name. Digits of ids stay, also if no program has them.
async fn program_id(daemon: &mut Connection, given: &str) -> Result<String, ClientError> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if given.bytes().all(is_digit) {
        return Ok(given.to_owned());
    }
    let path = format!("/v1/programs/{}", client::escape(given));
    match daemon.json::<Value>(Method::GET, &path, None).await {
        Ok(program) => Ok(table::text(&program, "id")),
        // No id begins with this.
        Err(ClientError::Problem { status: 404, .. }) => Ok(given.to_owned()),
        Err(error) => Err(error),
    }
}

/// A column of the table.
struct Column {
    heading: &'static str,
    /// The width without --wide; `None`: the rest of the line.
    width: Option<usize>,
    cell: fn(&Value) -> String,
}

/// Characters of a line without --wide.
const LINE: usize = 100;
/// Characters between two columns.
const GAP: usize = 2;

const ID: Column = Column {
    heading: "ID",
    width: Some(12),
    cell: |entry| table::text(entry, "id"),
};
const NAME: Column = Column {
    heading: "NAME",
    width: Some(12),
    cell: |entry| table::text(entry, "name"),
};
const PROGRAM: Column = Column {
    heading: "PROGRAM",
    width: Some(12),
    cell: |entry| table::text(spec(entry), "program"),
};
const ARGUMENTS: Column = Column {
    heading: "ARGUMENTS",
    width: Some(15),
    cell: arguments,
};
const STATE: Column = Column {
    heading: "STATE",
    width: Some(9),
    cell: |entry| table::text(entry, "state"),
};
const ADDRESS: Column = Column {
    heading: "ADDRESS",
    width: Some(15),
    cell: |entry| table::text(entry, "address"),
};
const CODE: Column = Column {
    heading: "CODE",
    width: Some(4),
    cell: |entry| table::text(entry, "exit_code"),
};
const MESSAGE: Column = Column {
    heading: "MESSAGE",
    width: None,
    cell: |entry| table::text(entry, "message"),
};

const MACHINES: [Column; 8] = [ID, NAME, PROGRAM, ARGUMENTS, STATE, ADDRESS, CODE, MESSAGE];
const RUNS: [Column; 6] = [ID, PROGRAM, ARGUMENTS, STATE, CODE, MESSAGE];

fn spec(entry: &Value) -> &Value {
    entry.get("spec").unwrap_or(&Value::Null)
}

fn arguments(entry: &Value) -> String {
    let arguments = spec(entry).get("args").and_then(Value::as_array);
    let arguments: Vec<_> = arguments
        .into_iter()
        .flatten()
        .filter_map(|argument| Some(argument.as_str()?.escape_debug().to_string()))
        .collect();
    arguments.join(" ")
}

/// Cuts cells, so that a line has at most [`LINE`] characters.
fn narrow<const N: usize>(columns: &[Column; N], rows: &mut [[String; N]]) {
    let mut left = LINE;
    for (number, column) in columns.iter().enumerate() {
        let width = column.width.unwrap_or(left);
        for row in &mut *rows {
            row[number] = match column.heading {
                // Their begins are as good as the whole ids.
                "ID" | "PROGRAM" => row[number].chars().take(width).collect(),
                _ => table::cut(&row[number], width),
            };
        }
        let cells = rows.iter().map(|row| row[number].chars().count());
        let widest = cells.chain([column.heading.len()]).max().unwrap_or(0);
        left = left.saturating_sub(widest + GAP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths<const N: usize>(row: &[String; N]) -> [usize; N] {
        std::array::from_fn(|column| row[column].chars().count())
    }

    #[test]
    fn rows_fit_a_terminal() {
        let long = || std::array::from_fn(|_| "x".repeat(150));
        let mut rows: Vec<[String; 8]> = vec![long()];
        narrow(&MACHINES, &mut rows);
        let row = &rows[0];
        let used: usize = lengths(row).iter().map(|length| length + GAP).sum();
        assert_eq!(used - GAP, LINE, "{row:?}");
        assert!(row[7].chars().count() >= MESSAGE.heading.len(), "{row:?}");
        assert!(!row[0].contains('\u{2026}') && row[3].ends_with('\u{2026}'));
        // The message gets the room that other columns leave.
        let mut rows = vec![std::array::from_fn(|_| "ab".to_owned())];
        rows[0][5] = "x".repeat(150);
        narrow(&RUNS, &mut rows);
        assert_eq!(rows[0][0], "ab");
        let widths: usize = RUNS[..5]
            .iter()
            .map(|column| column.heading.len() + GAP)
            .sum();
        assert_eq!(rows[0][5].chars().count(), LINE - widths);
    }

    #[test]
    fn filters_are_checked() {
        let is = |key: &str, value: &str| Ok((key.to_owned(), value.to_owned()));
        assert_eq!(filter("label=a=b"), is("label", "a=b"));
        assert_eq!(filter("state=running"), is("state", "running"));
        assert_eq!(filter("name=x"), is("name", "x"));
        assert!(filter("nam=x").is_err() && filter("state").is_err());
    }
}
