//! Debuggers that vanish, or do not listen: the program goes on, or waits for the next debugger.

use super::sessions::check_order;
use super::{OUTPUT, Program, Waiting};
use crate::O2;
use hartline_tests::Result;
use hartline_tests::suite::Suite;

pub fn add(suite: &mut Suite) {
    suite.add_kvm("gdb: debugger that vanishes", vanished);
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
