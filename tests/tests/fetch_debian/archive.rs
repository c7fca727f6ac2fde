//! A Debian archive for tests: packages, their index, and the signed Release file.

use hartline_tests::{Result, compile};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The architecture of all packages.
pub const ARCH: &str = "riscv64";

/// A package file and its entry in an index.
#[derive(Clone)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub depends: String,
    /// Path below the base URL of the mirror.
    pub path: String,
    pub sha256: String,
    pub bytes: Vec<u8>,
}

impl Package {
    /// Builds a package with one file, `usr/share/NAME`, that contains the version.
    pub fn new(work: &Path, name: &str, version: &str, depends: &str) -> Result<Self> {
        let file = format!("{name}_{version}_{ARCH}.deb");
        let tree = work.join("packages").join(&file);
        fs::create_dir_all(tree.join("DEBIAN"))?;
        fs::create_dir_all(tree.join("usr/share"))?;
        fs::write(tree.join("usr/share").join(name), version)?;
        let mut control = format!(
            "Package: {name}\nVersion: {version}\nArchitecture: {ARCH}\n\
             Maintainer: Test <test@localhost>\nDescription: test\n"
        );
        if !depends.is_empty() {
            control += &format!("Depends: {depends}\n");
        }
        fs::write(tree.join("DEBIAN/control"), control)?;
        let deb = tree.with_extension("made");
        compile::check(
            Command::new("dpkg-deb")
                .args(["--root-owner-group", "--build"])
                .arg(&tree)
                .arg(&deb),
        )?;
        Ok(Self {
            name: name.into(),
            version: version.into(),
            depends: depends.into(),
            path: format!("pool/main/h/{name}/{file}"),
            sha256: sha256(&deb)?,
            bytes: fs::read(&deb)?,
        })
    }

    /// Returns the package's line in `debian.lock`.
    pub fn lock_line(&self) -> String {
        let Self {
            name,
            version,
            path,
            sha256,
            ..
        } = self;
        format!("{ARCH} {name} {version} {path} {sha256}\n")
    }

    fn index_entry(&self) -> String {
        let depends = match self.depends.as_str() {
            "" => String::new(),
            names => format!("Depends: {names}\n"),
        };
        format!(
            "Package: {}\nVersion: {}\nArchitecture: {ARCH}\nMaintainer: Test <test@localhost>\n\
             {depends}Filename: {}\nSize: {}\nSHA256: {}\nDescription: test\n\n",
            self.name,
            self.version,
            self.path,
            self.bytes.len(),
            self.sha256
        )
    }
}

/// Returns the index of `packages`.
pub fn index(packages: &[&Package]) -> String {
    packages
        .iter()
        .map(|package| package.index_entry())
        .collect()
}

/// A key that signs Release files.
pub struct Key {
    home: PathBuf,
    /// The public key, as apt's `signed-by` reads it.
    pub keyring: PathBuf,
}

impl Key {
    /// Makes a key in `home`, whose path must be short because a socket is made there.
    pub fn new(home: PathBuf) -> Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        fs::create_dir_all(&home)?;
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700))?;
        let keyring = home.join("public.gpg");
        let key = Self { home, keyring };
        compile::check(key.gpg().args([
            "--quick-generate-key",
            "Test <test@localhost>",
            "ed25519",
            "sign",
            "never",
        ]))?;
        compile::check(key.gpg().arg("--output").arg(&key.keyring).arg("--export"))?;
        Ok(key)
    }

    fn gpg(&self) -> Command {
        let mut command = Command::new("gpg");
        command.args(["--batch", "--yes", "--quiet", "--pinentry-mode", "loopback"]);
        command.args(["--passphrase", "", "--homedir"]);
        command.arg(&self.home);
        command
    }

    /// Returns the signed `InRelease` file of a suite whose only index is `index`.
    pub fn in_release(&self, index: &str) -> Result<Vec<u8>> {
        let file = self.home.join("Packages");
        fs::write(&file, index)?;
        let date = Command::new("date").arg("-Ru").output()?.stdout;
        let release = format!(
            "Origin: Debian\nSuite: stable\nCodename: trixie\nDate: {}Architectures: {ARCH}\n\
             Components: main\nSHA256:\n {} {} main/binary-{ARCH}/Packages\n",
            String::from_utf8_lossy(&date),
            sha256(&file)?,
            index.len()
        );
        let (plain, signed) = (self.home.join("Release"), self.home.join("InRelease"));
        fs::write(&plain, release)?;
        compile::check(
            self.gpg()
                .arg("--output")
                .arg(&signed)
                .arg("--clearsign")
                .arg(&plain),
        )?;
        Ok(fs::read(&signed)?)
    }
}

impl Key {
    /// Stops the agent that gpg has started. The agent needs the folder for that.
    pub fn stop(&self) {
        let mut command = Command::new("gpgconf");
        command.arg("--homedir").arg(&self.home);
        // A remaining agent ends by itself when its folder is gone.
        let _ = command.args(["--kill", "gpg-agent"]).output();
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.home);
    }
}

fn sha256(file: &Path) -> Result<String> {
    let output = Command::new("sha256sum").arg(file).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let sum = text.split(' ').next().unwrap_or_default();
    match sum.len() {
        64 => Ok(sum.to_owned()),
        _ => Err(format!("sha256sum {}: {text}", file.display()).into()),
    }
}
