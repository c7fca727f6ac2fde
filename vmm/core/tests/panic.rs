//! A panic of a thread ends the process.

use hartline_vmm::report::abort_on_panic;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// Set in the process that panics.
const PANICS: &str = "HARTLINE_TEST_PANICS";

#[test]
fn a_panic_of_a_thread_aborts() {
    if std::env::var_os(PANICS).is_some() {
        abort_on_panic();
        let thread = std::thread::spawn(|| panic!("told to"));
        drop(thread.join());
        return;
    }
    let program = std::env::current_exe().expect("the path of this test");
    let output = Command::new(program)
        .args(["--nocapture", "a_panic_of_a_thread_aborts"])
        .env(PANICS, "1")
        .output()
        .expect("this test starts again");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("told to"), "{message}");
}
