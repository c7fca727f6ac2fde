//! Functions for the host. Where the host does not call them, the program calls them itself, with lines of its
//! input: a name and hexadecimal digits.

use hartline_sdk::{
    Errno, call, call_host, export, generation, hart_id, keep_generation, multiprocess, serve,
};
use std::io::{self, BufRead};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{fs, process};

/// The generation, which the system keeps there.
static KEPT: AtomicU64 = AtomicU64::new(0);

type Done = Result<(), Errno>;

pub fn main() {
    export_all().expect("exports");
    println!("ready");
    let Err(error) = serve();
    println!("serve: {error}");
    for line in io::stdin().lock().lines() {
        let line = line.expect("a line");
        let (name, digits) = line.rsplit_once(' ').expect("a name and an input");
        let mut output = Vec::new();
        match call(name, &bytes(digits), &mut output) {
            Ok(()) => println!("{name}: {}", digits_of(&output)),
            Err(error) => println!("{name}: error {}", error.number()),
        }
    }
}

fn export_all() -> Done {
    let count = AtomicU64::new(0);
    export("count", move |_, output| {
        put(output, count.fetch_add(1, Ordering::Relaxed) + 1);
        Ok(())
    })?;
    export("add", add)?;
    export("echo", |input, output| {
        output.extend(input);
        Ok(())
    })?;
    export("fail", |_, output| {
        output.push(1);
        Err(Errno::new(libc::EDOM).ok_or(Errno::EIO)?)
    })?;
    export("open", |_, _| {
        fs::File::open("/no such file")?;
        Ok(())
    })?;
    export("long", |input, output| {
        output.resize(number(input) as usize, b'x');
        Ok(())
    })?;
    export("parts", |input, output| {
        let parts = number(input) as usize;
        put(output, sum_in_parts(parts)?);
        Ok(())
    })?;
    export("serve", |_, _| match serve()? {})?;
    export("nested", |input, output| call("add", input, output))?;
    export("end", |input, _| process::exit(number(input) as i32))?;
    export_panics()?;
    export_outside()
}

/// Functions that panic, also while they have a lock, and in a part of a work.
fn export_panics() -> Done {
    let counter = Mutex::new(0u64);
    export("panic", move |input, output| {
        output.extend(input);
        let mut counter = counter.lock().unwrap_or_else(PoisonError::into_inner);
        *counter += 1;
        assert!(counter.is_multiple_of(2), "panic number {counter}");
        put(output, *counter);
        Ok(())
    })?;
    export("panic in a part", |input, _| {
        let panicking = number(input) as usize;
        multiprocess(4, |part| assert!(part != panicking, "part {part}"))
    })
}

/// Functions whose results depend on the host.
fn export_outside() -> Done {
    export("host", |input, output| call_host("twice", input, output))?;
    export("unknown", |input, output| {
        call_host("unknown", input, output)
    })?;
    export("long name", |_, output| {
        call_host(&"n".repeat(65), b"", output)
    })?;
    export("long input", |_, output| {
        call_host("twice", &[0; 65473], output)
    })?;
    export("from a part", |input, output| {
        let outputs = Mutex::new(vec![Vec::new(); 3]);
        let failed = AtomicU64::new(0);
        multiprocess(3, |part| {
            let mut output = Vec::new();
            let result = call_host("twice", input, &mut output);
            failed.fetch_add(u64::from(result.is_err()), Ordering::Relaxed);
            outputs.lock().unwrap_or_else(PoisonError::into_inner)[part] = output;
        })?;
        if failed.into_inner() != 0 {
            return Err(Errno::EIO);
        }
        let outputs = outputs.into_inner().unwrap_or_else(PoisonError::into_inner);
        output.extend(outputs.concat());
        Ok(())
    })?;
    // Elsewhere there is none.
    let _ = keep_generation(&KEPT);
    export("generation", |_, output| {
        if KEPT.load(Ordering::SeqCst) != generation() {
            return Err(Errno::EIO);
        }
        put(output, generation());
        Ok(())
    })
}

fn add(input: &[u8], output: &mut Vec<u8>) -> Done {
    let (numbers, rest) = input.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(Errno::EINVAL);
    }
    let sum = numbers
        .iter()
        .map(|&number| u64::from_le_bytes(number))
        .sum();
    put(output, sum);
    Ok(())
}

/// The sum of the numbers below 10,000, each of which one part has added.
fn sum_in_parts(parts: usize) -> Result<u64, Errno> {
    let numbers: Vec<u64> = (0..10_000).collect();
    let sums: Vec<AtomicU64> = numbers.iter().map(|_| AtomicU64::new(0)).collect();
    multiprocess(parts, |part| {
        let own = numbers.iter().skip(hart_id()).step_by(parts);
        sums[part].store(own.sum(), Ordering::Relaxed);
    })?;
    Ok(sums.into_iter().map(AtomicU64::into_inner).sum())
}

fn number(input: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = input.len().min(8);
    bytes[..length].copy_from_slice(&input[..length]);
    u64::from_le_bytes(bytes)
}

fn put(output: &mut Vec<u8>, value: u64) {
    output.clear();
    output.extend(value.to_le_bytes());
}

fn bytes(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn digits_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
