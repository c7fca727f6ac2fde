//! Versions of the Debian packages that a benchmark compares.

use anyhow::Context;
use std::fmt::Write;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Versions of one package.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Version {
    /// Name of the package.
    pub package: String,
    /// Debian's version for amd64.
    pub native: String,
    /// Debian's version for riscv64.
    pub riscv64: String,
}

impl Version {
    /// Returns whether the two were built from different sources. A rebuild (`+b1`) has the same.
    fn differs(&self) -> bool {
        sources(&self.native) != sources(&self.riscv64)
    }
}

/// Reads the versions that `tests/bench/build.sh` wrote into `directory` for `parts`. A part that
/// was not built has no versions.
///
/// # Errors
/// A file cannot be read or parsed.
pub fn read(directory: &Path, parts: &[&str]) -> anyhow::Result<Vec<Version>> {
    let mut all: Vec<Version> = Vec::new();
    for part in parts {
        let file = directory.join("versions").join(format!("{part}.json"));
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            other => other.with_context(|| format!("cannot read {}", file.display()))?,
        };
        let versions: Vec<Version> = serde_json::from_str(&text)
            .with_context(|| format!("{}: make bench-programs writes it", file.display()))?;
        all.extend(versions);
    }
    Ok(all)
}

/// Formats a line for each package whose versions differ, for the end of a table.
pub fn differences(versions: &[Version]) -> String {
    let mut text = String::new();
    for version in versions.iter().filter(|version| version.differs()) {
        let Version {
            package,
            native,
            riscv64,
        } = version;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "other version: {package}: {native} native, {riscv64} riscv64"
        );
    }
    text
}

/// Returns a version without the number of a rebuild.
fn sources(version: &str) -> &str {
    match version.rsplit_once("+b") {
        Some((sources, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => sources,
        _ => version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(package: &str, native: &str, riscv64: &str) -> Version {
        Version {
            package: package.into(),
            native: native.into(),
            riscv64: riscv64.into(),
        }
    }

    #[test]
    fn differences_are_named_but_rebuilds_are_not() {
        let versions = [
            version("bc", "1.07.1-4", "1.07.1-4+b2"),
            version("libc6", "2.41-12+deb13u5", "2.41-12+deb13u4"),
            version("zlib1g", "1:1.3.1-1+deb13u1", "1:1.3.1-1+b1"),
        ];
        assert_eq!(
            differences(&versions),
            "other version: libc6: 2.41-12+deb13u5 native, 2.41-12+deb13u4 riscv64\n\
             other version: zlib1g: 1:1.3.1-1+deb13u1 native, 1:1.3.1-1+b1 riscv64\n"
        );
        assert_eq!(differences(&versions[..1]), "");
    }

    #[test]
    fn parts_are_read_and_missing_ones_are_empty() {
        let directory =
            std::env::temp_dir().join(format!("hartline-versions-{}", std::process::id()));
        fs::create_dir_all(directory.join("versions")).unwrap();
        let file = directory.join("versions/debian.json");
        fs::write(
            &file,
            r#"[{"package":"bc","native":"1-4","riscv64":"1-5"}]"#,
        )
        .unwrap();
        let found = read(&directory, &["busybox", "debian"]);
        fs::write(&file, "[{").unwrap();
        let broken = read(&directory, &["debian"]);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(found.unwrap(), [version("bc", "1-4", "1-5")]);
        let error = broken.unwrap_err().to_string();
        assert!(
            error.contains("versions/debian.json: make bench-programs"),
            "{error}"
        );
    }
}
