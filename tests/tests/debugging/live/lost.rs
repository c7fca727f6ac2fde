//! Debuggers that vanish, or do not listen: the program goes on, or waits for the next debugger.

use super::{OUTPUT, Program, Waiting};
use crate::O2;
use hartline_tests::Result;
use hartline_tests::process::check_order;
use hartline_tests::suite::Suite;
use std::fs;
use std::io::Write;

pub fn add(suite: &mut Suite) {
    suite.add_kvm("gdb: debugger that vanishes", vanished);
    suite.add_kvm("gdb: half a packet", half_a_packet);
    suite.add_kvm("gdb: debugger that reads nothing", deaf);
}

/// The connection breaks at a breakpoint: the program goes on, or waits for the next debugger.
fn vanished() -> Result<()> {
    let program = Program::build("session.c", O2)?;
    let place = format!("{:x},2", program.address_of("add")?);
    for stays in [false, true] {
        let waiting = program.start(options(stays), &[])?;
        let mut raw = waiting.connect()?;
        raw.ask("?")?;
        let answers = [raw.ask(&format!("Z0,{place}"))?, raw.ask("vCont;c")?];
        if answers[0] != "OK" || !answers[1].starts_with("T05") {
            return Err(format!("{answers:?}").into());
        }
        drop(raw);
        finish(waiting, stays)?;
    }
    Ok(())
}

fn half_a_packet() -> Result<()> {
    let program = Program::build("session.c", O2)?;
    for stays in [false, true] {
        let waiting = program.start(options(stays), &[])?;
        let mut raw = waiting.connect()?;
        raw.expect("?", "T00")?;
        raw.stream.write_all(b"$vCont;c#")?;
        drop(raw);
        finish(waiting, stays)?;
    }
    Ok(())
}

/// The debugger asks for memory, steps and stops, and reads none of the answers.
fn deaf() -> Result<()> {
    /// Bytes by which the memory of the VM may grow: that of the program, and of its translations.
    const GROWTH: u64 = 100 << 20;
    let program = Program::build("session.c", O2)?;
    let place = program.address_of("add")?;
    for stays in [false, true] {
        let waiting = program.start(options(stays), &[])?;
        let mut raw = waiting.connect()?;
        raw.expect("?", "T00")?;
        raw.expect(&format!("Z0,{place:x},2"), "OK")?;
        let before = resident(&waiting)?;
        for _ in 0..5000 {
            // 16 KiB of answers.
            raw.send("m10000,2000")?;
            raw.send("vCont;s")?;
            raw.stream.write_all(&[3; 1000])?;
        }
        let after = resident(&waiting)?;
        if after > before + GROWTH {
            return Err(format!("{before} bytes, then {after}").into());
        }
        drop(raw);
        finish(waiting, stays)?;
    }
    Ok(())
}

fn options(stays: bool) -> &'static [&'static str] {
    match stays {
        true => &["--gdb-lost=stop"],
        false => &[],
    }
}

/// Checks that the program goes on, or stays stopped until gdb continues it.
fn finish(waiting: Waiting, stays: bool) -> Result<()> {
    if stays {
        let shown = waiting.gdb(&["p counter", "continue"])?;
        check_order(&shown, &["= ", "exited with code 05"])?;
    }
    waiting.end(5, OUTPUT)?;
    Ok(())
}

/// Memory of the VM's process, bytes.
fn resident(waiting: &Waiting) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", waiting.id()?))?;
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.ok_or("no VmRSS")?.parse::<u64>()? << 10)
}
