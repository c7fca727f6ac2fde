//! `hartlined` as a command. With this test a build of all tests has the program too.

use std::process::{Command, Output};

fn hartlined(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hartlined"));
    command.args(arguments).output().expect("it starts")
}

#[test]
fn help_has_the_options() {
    let output = hartlined(&["--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && help.contains("--config <FILE>"),
        "{help}"
    );
}

#[test]
fn mistakes_have_their_own_exit_code() {
    for arguments in [
        &["--no-such-option"][..],
        &["backup"],
        &["nothing"],
        &["--listen", "x"],
    ] {
        let output = hartlined(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
    let output = hartlined(&["--config", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(125), "it cannot run");
}

#[test]
fn what_only_the_daemon_starts_is_refused() {
    let by_a_manager = "; or service SOCKET, by a service manager";
    for (role, or) in [("jailed", ""), ("service", by_a_manager)] {
        let output = hartlined(&[role]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125));
        let usage = format!("hartlined: usage: {role} ");
        assert!(
            message.starts_with(&usage) && message.ends_with(&format!(", by hartlined only{or}\n")),
            "{message}"
        );
    }
}
