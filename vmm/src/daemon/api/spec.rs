//! Which specs of machines and runs are accepted.

use crate::daemon::problem::Problem;
use crate::daemon::store::Spec;
use crate::jail::MAX_MESSAGE;
use crate::layout::{MAX_CPUS, MAX_RAM, MIN_RAM};

const MAX_TIMEOUT_MS: u64 = 30 * 24 * 3600 * 1000;
/// Longest arguments and environment together, bytes: they go to the VMM in one message.
const MAX_STRINGS: usize = MAX_MESSAGE / 4;
const MAX_LABELS: usize = 64;

/// Checks everything of a spec that needs no database.
///
/// # Errors
/// Names the field.
pub(super) fn check_spec(spec: &Spec) -> Result<(), Problem> {
    if !(1..=MAX_CPUS as u32).contains(&spec.cpus) {
        return Err(Problem::field(
            "cpus",
            format!("must be from 1 to {MAX_CPUS}"),
        ));
    }
    if !(MIN_RAM..=MAX_RAM).contains(&spec.memory) {
        let rule = format!("must be from {MIN_RAM} to {MAX_RAM} bytes");
        return Err(Problem::field("memory", rule));
    }
    if !spec
        .timeout_ms
        .is_none_or(|ms| (1..=MAX_TIMEOUT_MS).contains(&ms))
    {
        let rule = format!("must be from 1 to {MAX_TIMEOUT_MS}");
        return Err(Problem::field("timeout_ms", rule));
    }
    let path = spec.path.iter().map(|path| ("path", path));
    let args = spec.args.iter().map(|argument| ("args", argument));
    let env = spec
        .env
        .iter()
        .flat_map(|(name, value)| [("env", name), ("env", value)]);
    let mut length = 0;
    for (field, text) in path.chain(args).chain(env) {
        length += text.len() + 4;
        if text.contains('\0') {
            return Err(Problem::field(field, "must have no NUL"));
        }
        if length > MAX_STRINGS {
            let rule = format!("path, args and env may have {MAX_STRINGS} bytes together");
            return Err(Problem::field(field, rule));
        }
    }
    if spec.path.as_ref().is_some_and(String::is_empty) {
        return Err(Problem::field("path", "must not be empty"));
    }
    if spec
        .env
        .keys()
        .any(|name| name.is_empty() || name.contains('='))
    {
        return Err(Problem::field(
            "env",
            "names must not be empty or contain =",
        ));
    }
    if spec.labels.len() > MAX_LABELS {
        return Err(Problem::field(
            "labels",
            format!("may be {MAX_LABELS} at most"),
        ));
    }
    Ok(())
}
