//! Finds the files of xterm.js, the terminal of the daemon's page, which become part of the program.

use std::env;
use std::path::PathBuf;

/// The files of Debian's package libjs-xterm below `usr/share`, and the variables with their paths.
const FILES: [(&str, &str); 5] = [
    ("HARTLINE_XTERM_JS", "javascript/xterm/xterm.js"),
    ("HARTLINE_XTERM_CSS", "javascript/xterm/xterm.css"),
    (
        "HARTLINE_XTERM_CANVAS",
        "javascript/xterm/addons/canvas/xterm-addon-canvas.js",
    ),
    (
        "HARTLINE_XTERM_FIT",
        "javascript/xterm/addons/fit/xterm-addon-fit.js",
    ),
    ("HARTLINE_XTERM_COPYRIGHT", "doc/libjs-xterm/copyright"),
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let share = manifest.join("../../.toolchain/usr/share");
    for (variable, name) in FILES {
        let file = share.join(name);
        println!("cargo:rerun-if-changed={}", file.display());
        assert!(
            file.is_file(),
            "{} is not there: run `make setup`",
            file.display()
        );
        println!("cargo:rustc-env={variable}={}", file.display());
    }
}
