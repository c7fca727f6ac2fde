//! `hartline` as a command. With this test a build of all tests has the program too.

use std::process::{Command, Output};

fn hartline(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hartline"));
    command.args(arguments).output().expect("it starts")
}

#[test]
fn help_has_the_commands_that_were_built() {
    let output = hartline(&["--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for command in ["run", "build", "inspect", "disasm", "doctor"] {
        assert!(
            help.contains(&format!("\n  {command} ")),
            "{command}: {help}"
        );
    }
    for command in ["push", "ps", "submit", "attach"] {
        let is_there = help.contains(&format!("\n  {command} "));
        assert_eq!(is_there, cfg!(feature = "client"), "{command}: {help}");
    }
}

#[test]
fn a_command_that_was_not_built_is_told() {
    let output = hartline(&["push"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(message.matches('\n').count(), 1, "{message}");
    let is_missing = message.contains("built without the daemon's client");
    assert_ne!(is_missing, cfg!(feature = "client"), "{message}");
}
