//! Nothing: this package only names a dependency (see Cargo.toml).
