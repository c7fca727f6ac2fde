use super::{MAX_DATA, MAX_EXPORTS, MAX_NAME, call, call_host, export, generation, parts, serve};
use crate::Errno;
use crate::system_call::Serve;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// The tests of one process share the exports; this one needs the room that is left.
static EXPORTING: Mutex<()> = Mutex::new(());

fn nothing(_: &[u8], _: &mut Vec<u8>) -> Result<(), Errno> {
    Ok(())
}

#[test]
fn names_are_checked() {
    let _exporting = EXPORTING.lock().unwrap();
    let longest = "n".repeat(MAX_NAME);
    assert_eq!(export("", nothing), Err(Errno::EINVAL));
    assert_eq!(export(&format!("{longest}n"), nothing), Err(Errno::EINVAL));
    assert_eq!(export(&longest, nothing), Ok(()));
    assert_eq!(export(&longest, nothing), Err(Errno::EEXIST));
    assert_eq!(call(&longest, b"", &mut Vec::new()), Ok(()));
}

#[test]
fn exports_have_a_limit() {
    let _exporting = EXPORTING.lock().unwrap();
    let mut left = 0;
    let error = loop {
        match export(&format!("one of many: {left}"), nothing) {
            Ok(()) => left += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, Errno::ENOSPC);
    assert!(left <= MAX_EXPORTS && left > MAX_EXPORTS - 20);
    // Room for the other tests.
    super::EXPORTS
        .write()
        .unwrap()
        .retain(|name, _| !name.starts_with(b"one of many"));
}

#[test]
fn calls_return_outputs_and_errors() {
    let _exporting = EXPORTING.lock().unwrap();
    let count = AtomicU32::new(0);
    export("count", move |input, output| {
        let count = count.fetch_add(1, Ordering::Relaxed);
        output.extend(input);
        output.extend(count.to_le_bytes());
        Ok(())
    })
    .unwrap();
    export("missing", |_, output| {
        output.push(1);
        std::fs::read("/no such file")?;
        Ok(())
    })
    .unwrap();
    let mut output = b"old".to_vec();
    assert_eq!(call("count", b"in", &mut output), Ok(()));
    assert_eq!(output, b"in\0\0\0\0");
    assert_eq!(call("count", b"", &mut output), Ok(()));
    assert_eq!(output, [1, 0, 0, 0]);
    for (name, error) in [
        ("missing", Errno::ENOENT),
        ("no such function", Errno::ENOENT),
    ] {
        output = b"old".to_vec();
        assert_eq!(call(name, b"", &mut output), Err(error));
        assert!(output.is_empty());
    }
}

#[test]
fn a_function_may_export_and_call_others() {
    let _exporting = EXPORTING.lock().unwrap();
    export("outer", |input, output| {
        export("inner", |input, output| {
            output.extend(input.iter().rev());
            Ok(())
        })?;
        call("inner", input, output)
    })
    .unwrap();
    let mut output = Vec::new();
    assert_eq!(call("outer", b"abc", &mut output), Ok(()));
    assert_eq!(output, b"cba");
}

#[test]
fn lengths_are_checked() {
    let _exporting = EXPORTING.lock().unwrap();
    export("grow", |input, output| {
        output.extend(input);
        output.extend(input.get(..1).unwrap_or_default());
        Ok(())
    })
    .unwrap();
    let mut output = Vec::new();
    let input = vec![7; MAX_DATA + 1];
    assert_eq!(call("grow", &input[..MAX_DATA - 1], &mut output), Ok(()));
    assert_eq!(output.len(), MAX_DATA);
    assert_eq!(
        call("grow", &input[..MAX_DATA], &mut output),
        Err(Errno::E2BIG)
    );
    assert!(output.is_empty());
    assert_eq!(call("grow", &input, &mut output), Err(Errno::E2BIG));
}

/// The value of a panic that panics when it is dropped.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("dropped"));
    }
}

#[test]
fn a_panic_is_an_error() {
    let _exporting = EXPORTING.lock().unwrap();
    export("text", |_, output| {
        output.push(1);
        std::panic::resume_unwind(Box::new("text"))
    })
    .unwrap();
    export("grenade", |_, _| {
        std::panic::resume_unwind(Box::new(Grenade))
    })
    .unwrap();
    for name in ["text", "grenade", "text"] {
        let mut output = Vec::new();
        assert_eq!(call(name, b"", &mut output), Err(Errno::ENOTRECOVERABLE));
        assert!(output.is_empty());
    }
}

#[test]
fn elsewhere_there_is_no_host() {
    for _ in 0..2 {
        assert_eq!(serve(), Err(Errno::ENOSYS));
    }
    let mut output = b"old".to_vec();
    assert_eq!(call_host("name", b"in", &mut output), Err(Errno::ENOSYS));
    assert!(output.is_empty());
    assert_eq!(generation(), 0);
}

#[test]
fn lengths_of_a_call_stay_in_the_buffer() {
    let buffer = *b"nameinput";
    let lengths = |name_length, input_length| {
        let request = Serve {
            name_length,
            input_length,
            ..Serve::default()
        };
        parts(&buffer, &request).map(|(name, input)| (name.to_vec(), input.to_vec()))
    };
    assert_eq!(lengths(4, 5), Some((b"name".to_vec(), b"input".to_vec())));
    assert_eq!(lengths(0, 0), Some((Vec::new(), Vec::new())));
    for (name, input) in [(4, 6), (10, 0), (u64::MAX, 1), (4, u64::MAX)] {
        assert_eq!(lengths(name, input), None);
    }
}
