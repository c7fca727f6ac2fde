//! Text of strangers in the log.

use super::neighbour::Scene;
use super::{Test, check};
use hartline_tests::Result;
use hartline_tests::daemon::until;

pub const TESTS: &[(&str, Test)] = &[("forged lines of the log", forged_lines)];

/// A tar file of one empty directory.
fn tar() -> Vec<u8> {
    let mut header = vec![0_u8; 512];
    header[..2].copy_from_slice(b"d/");
    header[100..108].copy_from_slice(b"0000755\0");
    header[108..124].copy_from_slice(b"0000000\x000000000\x00");
    header[124..148].copy_from_slice(b"00000000000\x0000000000000\x00");
    header[148..156].copy_from_slice(b"        ");
    header[156] = b'5';
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header.resize(3 * 512, 0);
    header
}

fn forged_lines() -> Result<()> {
    let scene = Scene::start("pool = 1")?;
    let before = scene.daemon.log().lines().count();
    // A line of its own, a title for the terminal, a line that is written over, and text in the
    // other direction.
    let path = "/nope%0A2026-11-24T00:00:00.000000Z%20%20INFO%20forged%0D%1B%5D0;x%07%1B%5B2K\
        %C2%9B1m%E2%80%AEdrow%E2%80%A8z";
    scene.attack_push(&format!("name=x&programs={path}"), &tar())?;
    until(|| scene.daemon.log().contains("forged"))?;
    let log = scene.daemon.log();
    let lines: Vec<_> = log.lines().skip(before).collect();
    check("lines", lines.len() == 1, &lines)?;
    let is_raw = |c: char| (c.is_control() && c != '\n') || ('\u{2028}'..='\u{202e}').contains(&c);
    check("printable", !log.contains(is_raw), &log)?;
    let shown = log.contains("/nope\\n2026") && log.contains("\\u{202e}drow");
    check("escaped", shown, &log)?;
    scene.end()
}
