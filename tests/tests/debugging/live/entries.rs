//! Breakpoints in functions of a file whose other functions run as LLVM has translated them.

use super::packets::Raw;
use super::{Program, Waiting};
use crate::O2;
use hartline_tests::suite::Suite;
use hartline_tests::{Result, hartline, reference};

pub fn add(suite: &mut Suite) {
    suite.add_kvm("gdb: functions that are entered in every way", || {
        every_entry(1)
    });
    suite.add_kvm("gdb: functions that are entered, on three vCPUs", || {
        every_entry(3)
    });
}

/// The places of breakpoints in `entered.c`, in the order in which a round comes there.
const ROUND: [&str; 13] = [
    "direct", "tail", "target", "pointed", "common", "common", "deep", "deep", "deep", "in_loop",
    "in_loop", "in_loop", "compare",
];
const ROUNDS: usize = 24;

/// `monitor` with a command. Returns what gdb would print.
fn monitor(raw: &mut Raw, command: &str) -> Result<String> {
    let digits: String = command.bytes().map(|byte| format!("{byte:02x}")).collect();
    let answer = raw.ask(&format!("qRcmd,{digits}"))?;
    let bytes = answer.as_bytes().chunks(2).map(|pair| {
        let digits = std::str::from_utf8(pair)?;
        Ok(u8::from_str_radix(digits, 16)?)
    });
    Ok(String::from_utf8(bytes.collect::<Result<_>>()?)?)
}

/// Stops at each place in each round in which it has a breakpoint, and nowhere else. The program's result is
/// right, and all other functions run as LLVM has translated them.
fn every_entry(cpus: u32) -> Result<()> {
    let program = Program::build("entered.c", O2)?;
    hartline::translate_precisely(&program.path)?;
    hartline::translate_for_made_code(&program.path)?;
    let rounds = ROUNDS.to_string();
    let expected = reference::command(&program.path)?.arg(&rounds).output()?;
    let expected = String::from_utf8(expected.stdout)?;
    for precise in ["precise on", "precise off"] {
        let cpus = format!("--cpus={cpus}");
        let waiting = program.start(&[&cpus], &[&rounds])?;
        session(&program, &waiting, precise).map_err(|error| format!("{precise}: {error:?}"))?;
        waiting.end(0, &expected)?;
    }
    Ok(())
}

/// Whether a round has a breakpoint at a place: other ones in each round.
fn has_breakpoint(round: usize, place: &str) -> bool {
    let number = ROUND.iter().position(|other| *other == place);
    match round % 4 {
        0 => true,
        1 => number.is_some_and(|number| number % 2 == 0),
        2 => place == "common" || place == "in_loop",
        // The round begins at a place of the one before.
        _ => place == "direct",
    }
}

fn session(program: &Program, waiting: &Waiting, precise: &str) -> Result<()> {
    let mut raw = waiting.connect()?;
    raw.expect("?", "T00")?;
    monitor(&mut raw, precise)?;
    let mut places = ROUND.to_vec();
    places.sort_unstable();
    places.dedup();
    let address = |place: &str| program.address_of(place);
    let addresses: Vec<u64> = places
        .iter()
        .map(|place| address(place))
        .collect::<Result<_>>()?;
    let packet = |index: usize| format!("0,{:x},2", addresses[index]);
    let index_of = |place: &str| {
        places
            .iter()
            .position(|other| *other == place)
            .ok_or("a place")
    };
    // Each round begins at `direct`, which always has a breakpoint.
    let direct = index_of("direct")?;
    raw.expect(&format!("Z{}", packet(direct)), "OK")?;
    for round in 0..ROUNDS {
        raw.run_to(addresses[direct])
            .map_err(|error| format!("round {round}: {error:?}"))?;
        for (index, place) in places
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != direct)
        {
            let kind = match has_breakpoint(round, place) {
                true => 'Z',
                false => 'z',
            };
            raw.expect(&format!("{kind}{}", packet(index)), "OK")?;
        }
        raw.step_over(&packet(direct))?;
        for place in ROUND
            .iter()
            .skip(1)
            .filter(|place| has_breakpoint(round, place))
        {
            let index = index_of(place)?;
            raw.run_to(addresses[index])
                .map_err(|error| format!("round {round}, {place}: {error:?}"))?;
            let listed = monitor(&mut raw, "translations")?;
            if !listed.contains(" optimised code, variant ") || listed.contains(" variant 0,") {
                return Err(format!("round {round}, {place}: {listed}").into());
            }
            raw.step_over(&packet(index))?;
        }
    }
    for index in 0..places.len() {
        raw.expect(&format!("z{}", packet(index)), "OK")?;
    }
    raw.expect("vCont;c", "W00")?;
    Ok(())
}
