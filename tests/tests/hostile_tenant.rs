//! What a tenant with a valid key does to the service and to the tenant next door. It must be
//! started by root, so the tests are ignored for other users.
//!
//! Each file attacks one thing. Each test does what a hostile tenant would do. Then it asserts that
//! another tenant's runs are as fast as before, that the daemon restarts, and that no quota was
//! exceeded.

#[path = "hostile_tenant/neighbour.rs"]
mod neighbour;
#[path = "hostile_tenant/volumes.rs"]
mod volumes;

use hartline_tests::Result;
use hartline_tests::suite::Suite;
use std::process::ExitCode;

type Test = fn() -> Result<()>;

/// The tests of each file, one line per file.
const TESTS: &[&[(&str, Test)]] = &[neighbour::TESTS, volumes::TESTS];

fn main() -> ExitCode {
    let mut suite = Suite::new();
    for (name, test) in TESTS.iter().copied().flatten() {
        suite.add_root_kvm(*name, test);
    }
    suite.run()
}
