//! Messages between the service and the spawner, as JSON. The spawner does not trust them: it
//! decodes and checks a request here ([`check_request`]) before it does anything.

use super::Unavailable;
use serde::{Deserialize, Serialize};
use std::io;

/// Longest request, bytes.
pub const MAX_REQUEST: usize = 16 << 10;
/// Most volumes of one VMM.
pub const MAX_VOLUMES: usize = 8;
/// Length of a volume's id, hex digits.
pub const ID_LENGTH: usize = 32;
/// Longest name of a tenant.
const MAX_TENANT: usize = 63;
/// Largest weight of a tenant.
const MAX_WEIGHT: u32 = 10_000;
/// Most memory of a guest, bytes: the address space of a VMM.
const MAX_MEMORY: u64 = 512 << 30;
/// Exclusive limit for numbers of descriptors of a VMM.
const MAX_DESCRIPTOR: i32 = 16 << 10;

/// Identifies a process that the spawner has started or adopted. The spawner chooses the number.
pub type ProcessId = u64;

/// Request from the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Number of the request; the answer has the same.
    pub number: u64,
    /// The requested action.
    pub action: Action,
}

/// An action of the spawner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Action {
    /// Start a jailed process, with a user that no other process has.
    Start(Start),
    /// Find a VMM again that an earlier daemon started.
    Adopt {
        /// The VMM's number.
        pid: i32,
        /// The VMM's start time (proc(5), `starttime`).
        start: u64,
        /// The tenant of the VMM.
        tenant: String,
    },
    /// Send a process a signal.
    Signal {
        /// The process.
        process: ProcessId,
        /// The signal.
        signal: Signal,
    },
    /// Limit a VMM to what a tenant's VM may use.
    Limit {
        /// The process.
        process: ProcessId,
        /// The tenant of the VMM.
        tenant: String,
        /// The tenant's share of the processors, from 1 to 10000.
        weight: u32,
        /// The guest's memory, bytes.
        memory: u64,
    },
    /// Duplicate one of the descriptors of a VMM.
    Duplicate {
        /// The process.
        process: ProcessId,
        /// The descriptor.
        part: Part,
    },
    /// Return how a process ended.
    Outcome {
        /// The process.
        process: ProcessId,
    },
    /// End a process, and forget it.
    End {
        /// The process.
        process: ProcessId,
    },
    /// Forget a process. A running process keeps its user until it has ended.
    Forget {
        /// The process.
        process: ProcessId,
    },
    /// Make the directory of a volume. The directory is on the disk when the answer is sent.
    MakeVolume {
        /// The volume's id.
        id: String,
    },
    /// Delete the directory of a volume if it is empty.
    RemoveVolume {
        /// The volume's id.
        id: String,
    },
    /// Make the network of a tenant, if it does not exist.
    MakeNetwork {
        /// The network's number in the configured ranges.
        index: u32,
    },
    /// Make a TAP interface in a network.
    Interface {
        /// The network's number.
        index: u32,
    },
    /// Find a network again by the TAP interface of a VMM.
    AdoptNetwork {
        /// The network's number.
        index: u32,
        /// A VMM that is in it.
        process: ProcessId,
    },
    /// Open the kernel's counters of a network's interfaces.
    Traffic {
        /// The network's number.
        index: u32,
    },
    /// Forget a network. The kernel deletes it with its last interface.
    ForgetNetwork {
        /// The network's number.
        index: u32,
    },
    /// Reload the rules of all networks.
    LoadRules,
    /// Open the sockets of the configuration.
    Listen,
    /// Read the configuration again, and open its files for TLS.
    Reload,
    /// Answer. The answer shows that the spawner serves requests.
    Ping,
}

/// The kind of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Start {
    /// A VMM.
    Vmm,
    /// A VMM that may use these volumes, or leave a core dump. Without volumes, it may do the latter only.
    VmmWithVolumes(Vec<VolumeMount>),
    /// A worker.
    Worker {
        /// The tenant that the worker works for.
        tenant: String,
    },
    /// A worker with a volume.
    VolumeWorker {
        /// The tenant of the volume, if it is known.
        tenant: Option<String>,
        /// The volume.
        volume: VolumeMount,
    },
}

impl Start {
    /// The tenant, if it is known when the process is started.
    pub(super) fn tenant(&self) -> Option<&str> {
        match self {
            Self::Vmm | Self::VmmWithVolumes(_) => None,
            Self::Worker { tenant } => Some(tenant),
            Self::VolumeWorker { tenant, .. } => tenant.as_deref(),
        }
    }
}

/// A volume of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeMount {
    /// The volume's id.
    pub id: String,
    /// Whether the process must not change anything in it.
    pub read_only: bool,
}

/// A signal that the service may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signal {
    /// `SIGTERM`.
    Terminate,
    /// `SIGKILL`.
    Kill,
    /// `SIGSTOP`.
    Stop,
    /// `SIGCONT`.
    Continue,
}

/// A descriptor of a VMM that the service may have a duplicate of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Part {
    /// The other end of the program's standard input: a stream socket.
    Input,
    /// The program's own end of its standard input: a stream socket, if it is kept open.
    OwnInput,
    /// The channel for requests of processes in the VM: a socket for messages.
    Requests,
    /// The program's standard output: a regular file.
    Output,
    /// The VMM's counters: memory.
    Counters,
    /// KVM's counters of a vCPU, by the descriptor's number.
    VcpuCounters(i32),
}

/// Answer to the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Number of the request.
    pub number: u64,
    /// The result.
    pub result: Result<Done, Refused>,
}

/// The result of an action. Descriptors come with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Done {
    /// The action is done, without a result.
    Nothing,
    /// A process exists. Descriptors: its pidfd, and, if it was started, the channel to it.
    Process {
        /// Identifies the process from now on.
        process: ProcessId,
        /// The process's number.
        pid: i32,
    },
    /// The process does not exist any more.
    Gone,
    /// A duplicate of a descriptor.
    Duplicate,
    /// The end of a process.
    Outcome(Outcome),
    /// Whether the directory of a volume is gone.
    Removed(bool),
    /// A TAP interface; the descriptor is open on it.
    Interface {
        /// The interface's name.
        name: String,
    },
    /// The kernel's counters; the descriptor is open on them.
    Traffic,
    /// Listening sockets: the unix one, and the TCP one if there is one.
    Listening,
    /// The configuration as it is now. Descriptors, if `has_tls`: the files of the certificates and
    /// the private key.
    Reloaded {
        /// The configuration, in the form of [`Hello`](super::Hello).
        configuration: String,
        /// Whether two descriptors come with this.
        has_tls: bool,
    },
}

/// The end of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The kernel has killed it because of its memory limit.
    pub out_of_memory: bool,
    /// The signal that has ended it, if one has. `None` too if it runs, or was adopted.
    pub signal: Option<i32>,
}

/// The reason why an action was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refused {
    /// The request cannot be decoded.
    #[error("request to the spawner: {0}")]
    Malformed(String),
    /// A value of the request is invalid.
    #[error("{name} {value}: {why}")]
    Value {
        /// Name of the value.
        name: String,
        /// The value.
        value: String,
        /// The reason.
        why: String,
    },
    /// The spawner knows no process of this number.
    #[error("the spawner has no process {0}")]
    NoProcess(ProcessId),
    /// All users are taken.
    #[error("no user is left for another jailed process: raise uids in the configuration")]
    NoUser,
    /// Networks are not available.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The host refused an operation.
    #[error("{message}")]
    Host {
        /// The error's number.
        code: Option<i32>,
        /// The error's text.
        message: String,
    },
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Host {
            code: error.raw_os_error(),
            message: error.to_string(),
        }
    }
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        match &refused {
            // The error number implies the text and the kind of the error.
            Refused::Host {
                code: Some(code), ..
            } => Self::from_raw_os_error(*code),
            Refused::Value { .. } | Refused::Malformed(_) => {
                Self::new(io::ErrorKind::InvalidInput, refused)
            }
            Refused::NoProcess(_) => Self::new(io::ErrorKind::NotFound, refused),
            _ => Self::other(refused),
        }
    }
}

/// Decodes a request and checks everything that can be checked without the host. `networks` is the
/// number of networks in the configured ranges.
///
/// # Errors
/// [`Refused::Malformed`] or [`Refused::Value`].
pub fn check_request(bytes: &[u8], networks: u32) -> Result<Request, Refused> {
    let request = decode(bytes)?;
    check(&request.action, networks)?;
    Ok(request)
}

/// Decodes a request without checking its values.
pub(super) fn decode(bytes: &[u8]) -> Result<Request, Refused> {
    if bytes.len() > MAX_REQUEST {
        let why = format!("has {} bytes, more than {MAX_REQUEST}", bytes.len());
        return Err(Refused::Malformed(why));
    }
    serde_json::from_slice(bytes).map_err(|error| Refused::Malformed(error.to_string()))
}

/// Checks the values of a request.
pub(super) fn check(action: &Action, networks: u32) -> Result<(), Refused> {
    match action {
        Action::Start(Start::Vmm) => Ok(()),
        Action::Start(Start::Worker { tenant }) => check_tenant(tenant),
        Action::Start(Start::VmmWithVolumes(volumes)) => {
            let count = volumes.len();
            in_range("volumes", count, count <= MAX_VOLUMES)?;
            volumes.iter().try_for_each(|volume| check_id(&volume.id))
        }
        Action::Start(Start::VolumeWorker { tenant, volume }) => {
            tenant.as_deref().map_or(Ok(()), check_tenant)?;
            check_id(&volume.id)
        }
        Action::Adopt { pid, tenant, .. } => {
            in_range("pid", pid, *pid > 1)?;
            check_tenant(tenant)
        }
        Action::Limit {
            tenant,
            weight,
            memory,
            ..
        } => {
            in_range("weight", weight, (1..=MAX_WEIGHT).contains(weight))?;
            in_range("memory", memory, *memory <= MAX_MEMORY)?;
            check_tenant(tenant)
        }
        Action::Duplicate {
            part: Part::VcpuCounters(number),
            ..
        } => in_range("descriptor", number, (3..MAX_DESCRIPTOR).contains(number)),
        Action::MakeVolume { id } | Action::RemoveVolume { id } => check_id(id),
        Action::MakeNetwork { index }
        | Action::Interface { index }
        | Action::AdoptNetwork { index, .. }
        | Action::Traffic { index }
        | Action::ForgetNetwork { index } => in_range("network", index, *index < networks),
        Action::Signal { .. }
        | Action::Duplicate { .. }
        | Action::Outcome { .. }
        | Action::End { .. }
        | Action::Forget { .. }
        | Action::LoadRules
        | Action::Listen
        | Action::Reload
        | Action::Ping => Ok(()),
    }
}

fn in_range(name: &str, value: impl ToString, is_in: bool) -> Result<(), Refused> {
    match is_in {
        true => Ok(()),
        false => Err(refused(name, value, "is out of range")),
    }
}

/// Refuses a value of a request.
pub(super) fn refused(name: &str, value: impl ToString, why: impl ToString) -> Refused {
    Refused::Value {
        name: name.to_owned(),
        value: value.to_string(),
        why: why.to_string(),
    }
}

/// The beginning of a text that the service sent, for a message.
fn shown(text: &str) -> String {
    let start: String = text.chars().take(MAX_TENANT).collect();
    format!("{start:?}")
}

/// Whether `id` is a volume's id: a name without separators or dots.
#[must_use]
pub fn is_volume_id(id: &str) -> bool {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    id.len() == ID_LENGTH && id.bytes().all(is_hex)
}

fn check_id(id: &str) -> Result<(), Refused> {
    match is_volume_id(id) {
        true => Ok(()),
        false => Err(refused("volume", shown(id), "not an id")),
    }
}

/// Checks a tenant's name, which becomes the name of a cgroup.
fn check_tenant(name: &str) -> Result<(), Refused> {
    let valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    match !name.is_empty() && name.len() <= MAX_TENANT && name.bytes().all(valid) {
        true => Ok(()),
        false => Err(refused("tenant", shown(name), "not a name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORKS: u32 = 256;

    fn checked(action: Action) -> Result<Request, Refused> {
        let request = Request { number: 7, action };
        check_request(&serde_json::to_vec(&request).unwrap(), NETWORKS)
    }

    fn mount(id: &str) -> VolumeMount {
        VolumeMount {
            id: id.to_owned(),
            read_only: false,
        }
    }

    fn volume_worker(id: &str) -> Start {
        Start::VolumeWorker {
            tenant: None,
            volume: mount(id),
        }
    }

    #[test]
    fn honest_requests_pass() {
        let id = "0123456789abcdef0123456789abcdef";
        for action in [
            Action::Start(Start::Vmm),
            Action::Start(Start::VmmWithVolumes(vec![mount(id); MAX_VOLUMES])),
            Action::Start(volume_worker(id)),
            Action::Start(Start::Worker {
                tenant: "acme-2".to_owned(),
            }),
            Action::MakeVolume { id: id.to_owned() },
            Action::MakeNetwork { index: 255 },
            Action::Limit {
                process: 1,
                tenant: "acme-2".to_owned(),
                weight: 10_000,
                memory: 1 << 30,
            },
            Action::Duplicate {
                process: 1,
                part: Part::VcpuCounters(40),
            },
            Action::Listen,
            Action::Reload,
            Action::Ping,
        ] {
            let request = checked(action.clone()).unwrap();
            assert_eq!((request.number, request.action), (7, action));
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for id in [
            "",
            "..",
            "../0123456789abcdef0123456789abc",
            "0123456789abcdef/123456789abcdef",
            "0123456789abcdef0123456789abcde\0",
            "0123456789ABCDEF0123456789ABCDEF",
            "0123456789abcdef0123456789abcdef0",
        ] {
            for action in [
                Action::MakeVolume { id: id.to_owned() },
                Action::RemoveVolume { id: id.to_owned() },
                Action::Start(volume_worker(id)),
                Action::Start(Start::VmmWithVolumes(vec![mount(id)])),
            ] {
                let error = checked(action).unwrap_err();
                let is_volume = matches!(&error, Refused::Value { name, .. } if name == "volume");
                assert!(is_volume, "{id}: {error}");
            }
        }
        for tenant in ["", "..", "a/b", "A", "cgroup.procs", &"a".repeat(64)] {
            let limit = Action::Limit {
                process: 1,
                tenant: tenant.to_owned(),
                weight: 1,
                memory: 0,
            };
            let adopt = Action::Adopt {
                pid: 2,
                start: 0,
                tenant: tenant.to_owned(),
            };
            let worker = Action::Start(Start::Worker {
                tenant: tenant.to_owned(),
            });
            for action in [limit, adopt, worker] {
                let error = checked(action).unwrap_err();
                let is_tenant = matches!(&error, Refused::Value { name, .. } if name == "tenant");
                assert!(is_tenant, "{tenant}: {error}");
            }
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let limit = |weight, memory| Action::Limit {
            process: 1,
            tenant: "a".to_owned(),
            weight,
            memory,
        };
        let adopt = |pid| Action::Adopt {
            pid,
            start: 0,
            tenant: "a".to_owned(),
        };
        let counters = |number| Action::Duplicate {
            process: 1,
            part: Part::VcpuCounters(number),
        };
        for (wrong, expected) in [
            (adopt(1), "pid"),
            (adopt(0), "pid"),
            (adopt(-1), "pid"),
            (limit(0, 0), "weight"),
            (limit(10_001, 0), "weight"),
            (limit(1, u64::MAX), "memory"),
            (counters(-1), "descriptor"),
            (counters(2), "descriptor"),
            (counters(i32::MAX), "descriptor"),
            (Action::MakeNetwork { index: 256 }, "network"),
            (Action::Interface { index: u32::MAX }, "network"),
        ] {
            let error = checked(wrong).unwrap_err();
            let is_right = matches!(&error, Refused::Value { name, .. } if name == expected);
            assert!(is_right, "{expected}: {error}");
        }
        let many = vec![mount("0123456789abcdef0123456789abcdef"); MAX_VOLUMES + 1];
        let error = checked(Action::Start(Start::VmmWithVolumes(many))).unwrap_err();
        assert_eq!(error.to_string(), "volumes 9: is out of range");
        assert!(checked(Action::Start(Start::VmmWithVolumes(Vec::new()))).is_ok());
    }

    #[test]
    fn nonsense_is_refused() {
        let long = format!(
            "{{\"number\":1,\"action\":\"{}\"}}",
            "x".repeat(MAX_REQUEST)
        );
        for bytes in [
            &b""[..],
            b"\0\xff",
            b"{}",
            br#"{"number":-1,"action":"Listen"}"#,
            br#"{"number":1,"action":"Listen","uid":0}"#,
            br#"{"number":1,"action":{"Signal":{"process":1,"signal":9}}}"#,
            br#"{"number":1,"action":{"Start":{"Vmm":{"uid":0}}}}"#,
            br#"{"number":1,"action":{"Adopt":{"pid":9999999999,"start":0,"tenant":"a"}}}"#,
            long.as_bytes(),
        ] {
            let error = check_request(bytes, NETWORKS).unwrap_err();
            assert!(matches!(error, Refused::Malformed(_)), "{error}");
        }
    }
}
