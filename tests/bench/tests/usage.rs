//! `hartline-bench` as a command. With this test a build of all tests has the program too.

use std::process::Command;

#[test]
fn help_lists_the_benchmarks() {
    let output = Command::new(env!("CARGO_BIN_EXE_hartline-bench"))
        .arg("--help")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("Usage: hartline bench"));
    for name in [
        "compute", "ablation", "syscalls", "io", "disk", "debug", "snapshot", "service",
    ] {
        assert!(text.contains(&format!("\n  {name} ")), "{name}: {text}");
    }
}

#[test]
fn a_mistake_is_one_line() {
    let output = Command::new(env!("CARGO_BIN_EXE_hartline-bench"))
        .args(["compute", "--runs", "none"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(125), 1));
    assert!(
        text.starts_with("hartline: ") && text.contains("--runs"),
        "{text}"
    );
}
