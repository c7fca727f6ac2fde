use super::*;
use std::time::Duration;

fn command(arguments: &[&str]) -> Command {
    Command {
        arguments: arguments.iter().map(|&text| text.to_owned()).collect(),
        environment: vec!["A=1".to_owned()],
        user: (7, 8),
        directory: "/x".to_owned(),
        terminal: None,
    }
}

/// The VMM's end of a process.
struct Served {
    control: Channel,
    streams: Vec<OwnedFd>,
    program: OwnedFd,
    length: u64,
}

fn started(arguments: &[&str]) -> (Exec, Served) {
    let (own, other) = Channel::pair().unwrap();
    let exec = Exec::start(&other, &command(arguments)).unwrap();
    let (message, mut descriptors) = own.receive().unwrap();
    let SpawnJob { length } = serde_json::from_slice(&message).unwrap();
    let program = descriptors.pop().unwrap();
    let control = descriptors.remove(0).into();
    let served = Served {
        control,
        streams: descriptors,
        program,
        length,
    };
    (exec, served)
}

#[tokio::test]
async fn the_guest_gets_the_command() {
    let (_exec, served) = started(&["a", ""]);
    let mut bytes = vec![0; 1000];
    let count = rustix::io::read(&served.program, &mut bytes).unwrap();
    assert_eq!(count as u64, served.length);
    let (header, strings) = Header::decode(&bytes[..count]).unwrap();
    assert_eq!((header.uid, header.gid, header.terminal), (7, 8, None));
    assert_eq!(strings, b"/x\0a\0\0A=1\0");
}

#[tokio::test]
async fn the_vmm_gets_sizes_of_terminals() {
    let (exec, served) = started(&["a"]);
    for (rows, columns) in [(1, 2), (u16::MAX, 1)] {
        exec.control.resize(Window { rows, columns }).await.unwrap();
        let (message, _) = served.control.receive().unwrap();
        let got: ToProcess = serde_json::from_slice(&message).unwrap();
        assert_eq!(got, ToProcess::Resize { rows, columns });
    }
}

#[tokio::test]
async fn commands_are_bounded() {
    let (_own, other) = Channel::pair().unwrap();
    let long = "x".repeat(MAX_STRING);
    let most = "x".repeat(MAX_STRING - 1);
    for arguments in [&[long.as_str()][..], &["a\0b"], &[most.as_str(); 17]] {
        let refused = Exec::start(&other, &command(arguments)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
    assert!(Exec::start(&other, &command(&[most.as_str(); 16])).is_ok());
}

#[tokio::test]
async fn all_output_before_the_end_arrives() {
    let (mut exec, served) = started(&["a"]);
    for round in 0..50u8 {
        rustix::io::write(&served.streams[1], &[round; 1000]).unwrap();
    }
    let exited = serde_json::to_vec(&FromProcess::Exited(3)).unwrap();
    served.control.send(&exited, &[]).unwrap();
    // The stream stays open, as with a child in the background.
    let ended = exec.control.end().await;
    assert_eq!((ended.code, ended.message.as_str()), (3, ""));
    let mut length = 0;
    loop {
        let next = tokio::time::timeout(Duration::from_secs(10), exec.outputs[0].next());
        let bytes = next.await.unwrap().unwrap();
        if bytes.is_empty() {
            break;
        }
        length += bytes.len();
    }
    assert_eq!(length, 50_000);
}

#[tokio::test]
async fn ends_have_the_codes_of_shells() {
    for (message, code, text) in [
        (FromProcess::Failed(libc::ENOENT), 127, "a: not found"),
        (
            FromProcess::Failed(libc::EACCES),
            126,
            "a: permission denied",
        ),
        (
            FromProcess::Failed(libc::ENOEXEC),
            126,
            "a: not an executable file",
        ),
        (
            FromProcess::Failed(100_000),
            126,
            "a: Unknown error 100000 (os error 100000)",
        ),
        (
            FromProcess::Failed(i32::MIN),
            126,
            "a: Unknown error -2147483648 (os error -2147483648)",
        ),
        (
            FromProcess::TooMany,
            125,
            "a: too many processes of this kind run in the machine",
        ),
    ] {
        let (exec, served) = started(&["a"]);
        let message = serde_json::to_vec(&message).unwrap();
        served.control.send(&message, &[]).unwrap();
        let ended = exec.control.end().await;
        assert_eq!((ended.code, ended.message.as_str()), (code, text));
    }
    let (exec, served) = started(&["a"]);
    drop(served);
    let ended = exec.control.end().await;
    assert_eq!(
        (ended.code, ended.message.as_str()),
        (137, "the machine has ended")
    );
}
