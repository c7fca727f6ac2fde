//! Requests of the service to the spawner, which runs as root. An invalid request, or one with a
//! forbidden name, is refused. A valid one is the same after it is written and read again.

#![no_main]

use hartline_jail::spawner::protocol::{
    Action, MAX_REQUEST, MAX_VOLUMES, Part, Start, check_request, is_volume_id,
};
use libfuzzer_sys::fuzz_target;

/// The number of networks in the configured ranges.
const NETWORKS: u32 = 256;

fuzz_target!(|input: &[u8]| {
    let request = match check_request(input, NETWORKS) {
        Ok(request) => request,
        Err(refused) => return assert!(!refused.to_string().is_empty()),
    };
    assert!(input.len() <= MAX_REQUEST);
    check(&request.action);
    let written = serde_json::to_vec(&request).expect("JSON");
    assert_eq!(check_request(&written, NETWORKS), Ok(request));
});

/// Checks the properties that the spawner relies on for paths, groups and interfaces.
fn check(action: &Action) {
    match action {
        Action::Start(Start::Vmm) => {}
        Action::Start(Start::VmmWithVolumes(volumes)) => {
            // There are none if the VMM may only leave a core dump.
            assert!(volumes.len() <= MAX_VOLUMES);
            assert!(volumes.iter().all(|volume| is_volume_id(&volume.id)));
        }
        Action::Start(Start::Worker { tenant }) => check_tenant(tenant),
        Action::Start(Start::VolumeWorker { tenant, volume }) => {
            tenant.iter().for_each(|tenant| check_tenant(tenant));
            assert!(is_volume_id(&volume.id));
        }
        Action::Adopt { pid, tenant, .. } => {
            assert!(*pid > 1);
            check_tenant(tenant);
        }
        Action::Limit { tenant, weight, .. } => {
            assert!((1..=10_000).contains(weight));
            check_tenant(tenant);
        }
        Action::MakeVolume { id } | Action::RemoveVolume { id } => assert!(is_volume_id(id)),
        Action::MakeNetwork { index }
        | Action::Interface { index }
        | Action::AdoptNetwork { index, .. }
        | Action::Traffic { index }
        | Action::ForgetNetwork { index } => assert!(*index < NETWORKS),
        Action::Duplicate {
            part: Part::VcpuCounters(number),
            ..
        } => assert!(*number > 2),
        Action::Duplicate { .. }
        | Action::Signal { .. }
        | Action::Outcome { .. }
        | Action::End { .. }
        | Action::Forget { .. }
        | Action::LoadRules
        | Action::Listen
        | Action::Reload
        | Action::Ping => {}
    }
}

/// Checks that a name is a single path component and not the name of a cgroup's own file.
fn check_tenant(name: &str) {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    assert!(!name.is_empty() && name.len() <= 63 && name.bytes().all(plain));
}
