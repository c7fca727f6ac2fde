//! The Python client (`deploy/sdk/python`): its tests run against its wheel in a new environment, and
//! start daemons of their own.

use hartline_tests::python::{Package, succeed};
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile, hartline, paths};

const PACKAGE: Package = Package("deploy/sdk/python");

/// Builds the wheel, installs it with its declared dependencies, and runs the package's tests with it.
pub fn works() -> Result<()> {
    let folder = Scratch::new()?;
    let python = PACKAGE.install(folder.path(), &["hartline", "pytest", "trio"], |_| ())?;
    let mut tests = PACKAGE.tests(&python);
    tests
        .env("HARTLINED", hartline::daemon()?)
        .env("HARTLINE_SERVICE", compile::service()?)
        .env("HARTLINE_BUSYBOX", paths::busybox());
    succeed(&mut tests)
}

/// The types are complete and right, and the style is the usual one.
pub fn types_and_style() -> Result<()> {
    PACKAGE.check_types_and_style()
}
