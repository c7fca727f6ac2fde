//! Stores the probe's result in the cache directory, for the host that it was made on.

use super::{Features, Host, ProbeError, probe};
use crate::platform::Kvm;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Name of the file in the cache directory.
const FILE: &str = "probe.json";
/// Incremented whenever the tests change.
const VERSION: u32 = 2;
/// Longer files are ignored.
const MAX_LENGTH: u64 = 64 << 10;

/// The contents of the file.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Stored {
    version: u32,
    host: String,
    features: Features,
    /// SHA-256 over the other fields, hexadecimal.
    checksum: String,
}

impl Stored {
    fn new(host: &str, features: Features) -> Self {
        let mut stored = Self {
            version: VERSION,
            host: host.to_owned(),
            features,
            checksum: String::new(),
        };
        stored.checksum = stored.sum();
        stored
    }

    fn sum(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.version.to_le_bytes());
        hash.update(&self.host);
        for finding in self.features.findings() {
            let works = if finding.works { "works" } else { "fails" };
            for text in ["\0", &finding.name, "\0", works, "\0", &finding.reason] {
                hash.update(text);
            }
        }
        hash.finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// The result for this host from `directory`. If there is no valid result for this host, this
/// probes and stores one. A failure to store is no error: the next start probes again.
///
/// # Errors
/// As [`probe`].
pub fn cached(kvm: &Kvm, directory: &Path) -> Result<Features, ProbeError> {
    let host = Host::detect().key();
    if let Some(features) = load(directory, &host) {
        return Ok(features);
    }
    let features = probe(kvm)?;
    // A failure costs only time.
    let _ = store(directory, &host, &features);
    Ok(features)
}

fn load(directory: &Path, host: &str) -> Option<Features> {
    let path = directory.join(FILE);
    if fs::metadata(&path).ok()?.len() > MAX_LENGTH {
        return None;
    }
    let stored: Stored = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
    let valid = stored.version == VERSION
        && stored.host == host
        && stored.checksum == stored.sum()
        && stored.features.complete();
    valid.then_some(stored.features)
}

/// Writes a new file and renames it: readers see the complete old or new file.
fn store(directory: &Path, host: &str, features: &Features) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let text = serde_json::to_vec(&Stored::new(host, features.clone()))?;
    let new = directory.join(format!("{FILE}.{}", std::process::id()));
    let written = fs::File::create(&new)
        .and_then(|mut file| file.write_all(&text))
        .and_then(|()| fs::rename(&new, directory.join(FILE)));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::super::{Feature, Finding};
    use super::*;

    fn sample() -> Features {
        let finding = |feature: Feature| Finding {
            name: feature.llvm_name().to_owned(),
            works: feature < Feature::Avx2,
            reason: String::from(if feature < Feature::Avx2 {
                ""
            } else {
                "invalid opcode"
            }),
        };
        Features {
            findings: Feature::ALL.map(finding).to_vec(),
        }
    }

    #[test]
    fn round_trip_for_this_host_only() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("new");
        assert_eq!(load(&below, "host"), None);
        store(&below, "host", &sample()).unwrap();
        assert_eq!(load(&below, "host"), Some(sample()));
        assert_eq!(load(&below, "other"), None);
        assert_eq!(
            fs::read_dir(&below).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        store(directory.path(), "host", &sample()).unwrap();
        let path = directory.path().join(FILE);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert_eq!(load(directory.path(), "host"), None, "byte {at}");
        }
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        assert_eq!(load(directory.path(), "host"), None);
    }

    #[test]
    fn missing_findings_do_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let mut features = sample();
        features.findings.pop();
        store(directory.path(), "host", &features).unwrap();
        assert_eq!(load(directory.path(), "host"), None);
    }
}
