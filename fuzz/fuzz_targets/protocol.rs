//! Both JSON protocols: messages between the daemon and jailed processes, and bodies and query
//! strings of the API. An invalid message is an error. A valid one is the same after it is written
//! and read again.

#![no_main]

use hartline_daemon::api::fuzzing::{REQUESTS, read_request};
use hartline_daemon::jailed::protocol::{
    FromVmm, FromVolumeWorker, FromWorker, RunJob, RunResult, ToVmm, VolumeTask, WorkerJob,
};
use hartline_daemon::store::Spec;
use hartline_jail::Channel;
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The number of kinds of messages; requests have the kinds after them.
const MESSAGES: u8 = 8;

fuzz_target!(|input: &[u8]| {
    let Some((&kind, text)) = input.split_first() else {
        return;
    };
    let kind = kind % (MESSAGES + REQUESTS);
    if let Some(request) = kind.checked_sub(MESSAGES) {
        return check_request(request, text);
    }
    let Some(message) = pass(text) else {
        return;
    };
    match kind {
        0 => check_message::<RunJob>(&message),
        1 => check_message::<FromVmm>(&message),
        2 => check_message::<ToVmm>(&message),
        3 => check_message::<RunResult>(&message),
        4 => check_message::<WorkerJob>(&message),
        5 => check_message::<FromWorker>(&message),
        6 => check_message::<VolumeTask>(&message),
        _ => check_message::<FromVolumeWorker>(&message),
    }
});

/// Sends and receives a message; `None` if it cannot be sent.
fn pass(text: &[u8]) -> Option<Vec<u8>> {
    let (from, to) = Channel::pair().expect("descriptors");
    from.send(text, &[]).ok()?;
    let (message, descriptors) = to.receive().expect("a message");
    assert_eq!(message, text);
    assert!(descriptors.is_empty());
    Some(message)
}

fn check_message<T: Serialize + DeserializeOwned>(message: &[u8]) {
    match serde_json::from_slice::<T>(message) {
        Ok(value) => assert_same(&value),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn check_request(request: u8, text: &[u8]) {
    match read_request(request, text) {
        // The database stores this form, with idempotency keys in place of the written contents.
        Some(Ok(Some(spec))) => {
            assert_same::<Spec>(&spec);
            let written = serde_json::to_vec(&spec).expect("JSON");
            assert_eq!(serde_json::from_slice::<Spec>(&written).ok(), Some(spec));
        }
        Some(Ok(None)) | None => {}
        Some(Err(status)) => assert!(status.is_client_error(), "{status}"),
    }
}

fn assert_same<T: Serialize + DeserializeOwned>(value: &T) {
    let written = serde_json::to_vec(value).expect("JSON");
    let read: T = serde_json::from_slice(&written).expect("what was just written");
    assert_eq!(serde_json::to_vec(&read).expect("JSON"), written);
}
