//! What a tenant with a valid key can do to the service and to the neighbour, another tenant. The
//! daemon must be started by root, so other users list these tests as ignored.
//!
//! Each file attacks one thing. Each test acts as a hostile tenant. Then it asserts that the
//! neighbour's runs are as fast as runs of a daemon without an attack beside it, that the daemon
//! restarts, and that no quota was exceeded.

#[path = "hostile_tenant/connections.rs"]
mod connections;
#[path = "hostile_tenant/copies.rs"]
mod copies;
#[path = "hostile_tenant/frames.rs"]
mod frames;
#[path = "hostile_tenant/ledger.rs"]
mod ledger;
#[path = "hostile_tenant/links.rs"]
mod links;
#[path = "hostile_tenant/logs.rs"]
mod logs;
#[path = "hostile_tenant/memory.rs"]
mod memory;
#[path = "hostile_tenant/neighbour.rs"]
mod neighbour;
#[path = "hostile_tenant/network.rs"]
mod network;
#[path = "hostile_tenant/rates.rs"]
mod rates;
#[path = "hostile_tenant/results.rs"]
mod results;
#[path = "hostile_tenant/sharing.rs"]
mod sharing;
#[path = "hostile_tenant/spoofing.rs"]
mod spoofing;
#[path = "hostile_tenant/storage.rs"]
mod storage;
#[path = "hostile_tenant/translator.rs"]
mod translator;
#[path = "hostile_tenant/vmm.rs"]
mod vmm;
#[path = "hostile_tenant/volumes.rs"]
mod volumes;

use hartline_tests::Result;
use hartline_tests::suite::Suite;
use std::process::ExitCode;

type Test = fn() -> Result<()>;

/// The tests of each file, one line per file.
const TESTS: &[&[(&str, Test)]] = &[
    neighbour::TESTS,
    connections::TESTS,
    copies::TESTS,
    ledger::TESTS,
    links::TESTS,
    logs::TESTS,
    memory::TESTS,
    network::TESTS,
    rates::TESTS,
    results::TESTS,
    sharing::TESTS,
    spoofing::TESTS,
    storage::TESTS,
    translator::TESTS,
    volumes::TESTS,
];

fn check(what: &str, is: bool, found: &impl std::fmt::Debug) -> Result<()> {
    match is {
        true => Ok(()),
        false => Err(format!("{what}: {found:?}").into()),
    }
}

fn main() -> ExitCode {
    let mut suite = Suite::new();
    for (name, test) in TESTS.iter().copied().flatten() {
        suite.add_root_kvm(*name, test);
    }
    suite.run()
}
