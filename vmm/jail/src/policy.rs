//! The policy of the jail, `policy.json`: the system calls that each kind of thread may make.
//!
//! Rules have the format of the seccompiler crate. A call that no rule of its kind allows ends the
//! process. Calls in `refused` fail instead: the program's libraries try them and can do without.
//! Calls in `killed` end the process without a report.
//!
//! The build script compiles the policy. The crate itself has this module only for its tests.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const POLICY: &str = include_str!("policy.json");

/// The kinds of threads, in the order of their numbers in the kernel's `SIGSYS` information
/// (`SECCOMP_RET_DATA`), which begin with 1.
pub const KINDS: [&str; 10] = [
    "vmm",
    WITH_VOLUMES,
    "worker",
    "volume_worker",
    "vcpu",
    "console",
    "volumes",
    "network",
    "spawn",
    RESET_VCPU,
];
/// The kind of a vCPU thread that also resets its VM.
const RESET_VCPU: &str = "reset_vcpu";
/// The kind whose threads may make the calls of the kinds `vmm` and `volumes`.
const WITH_VOLUMES: &str = "vmm_with_volumes";
/// Name of the filter of the calls that end the process at once.
pub const KILLED: &str = "killed";

/// A system call, and the conditions for its arguments.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    syscall: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    args: Option<Vec<Value>>,
}

/// Calls that fail with an error.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    /// The error's number.
    errno: u16,
    /// The kinds of threads that may try them; all if there are none.
    #[serde(default)]
    kinds: Vec<String>,
    /// The calls; the comment of each names the code that makes it.
    calls: Vec<Rule>,
}

/// The policy in the format of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Calls that libraries try and can do without.
    refused: Vec<Refused>,
    /// Calls that end the process without a report.
    killed: Vec<Rule>,
    /// Calls that all kinds may make.
    common: Vec<Rule>,
    /// Additional calls of each kind, by its name.
    kinds: BTreeMap<String, Vec<Rule>>,
}

impl Policy {
    /// Reads the policy.
    ///
    /// # Errors
    /// It is not valid: a bug in it.
    pub fn read() -> Result<Self, serde_json::Error> {
        serde_json::from_str(POLICY)
    }

    /// All rules of a kind.
    fn rules(&self, kind: &str) -> Vec<Rule> {
        let parts = match kind {
            WITH_VOLUMES => vec!["vmm", RESET_VCPU, "volumes"],
            // A thread can only have fewer calls than its process.
            "vmm" => vec!["vmm", RESET_VCPU],
            RESET_VCPU => vec!["vcpu", RESET_VCPU],
            kind => vec![kind],
        };
        let own = parts.iter().filter_map(|kind| self.kinds.get(*kind));
        let rules: Vec<_> = self.common.iter().chain(own.flatten()).collect();
        // A call that is allowed with all arguments must have no rule with conditions: those would count alone.
        let is_free = |call: &str| {
            let mut rules = rules.iter().filter(|rule| rule.syscall == call);
            rules.any(|rule| rule.args.is_none())
        };
        let counts = |rule: &&&Rule| rule.args.is_none() || !is_free(&rule.syscall);
        rules.iter().filter(counts).copied().cloned().collect()
    }

    /// The refused calls of a kind.
    fn refused(&self, kind: &str) -> impl Iterator<Item = &Refused> {
        let is_for = move |refused: &&Refused| {
            refused.kinds.is_empty() || refused.kinds.iter().any(|name| name == kind)
        };
        self.refused.iter().filter(is_for)
    }

    /// The filters, in the format of the seccompiler crate: of each kind, `KIND refuses N` for each
    /// of its parts of `refused`, and [`KILLED`].
    pub fn filters(&self) -> Value {
        let filter = |mismatch: Value, matches: Value, rules: &[Rule]| json!({"mismatch_action": mismatch, "match_action": matches, "filter": rules});
        let mut filters = serde_json::Map::new();
        let killed = filter(json!("allow"), json!("kill_process"), &self.killed);
        filters.insert(KILLED.to_owned(), killed);
        for kind in KINDS {
            let mut rules = self.rules(kind);
            for (number, refused) in self.refused(kind).enumerate() {
                let action = json!({"errno": refused.errno});
                let refusal = filter(json!("allow"), action, &refused.calls);
                filters.insert(format!("{kind} refuses {number}"), refusal);
                // A trap would take precedence over the error.
                rules.extend_from_slice(&refused.calls);
            }
            let filter = filter(json!("trap"), json!("allow"), &rules);
            filters.insert(kind.to_owned(), filter);
        }
        filters.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_are_there_and_no_others() {
        let policy = Policy::read().unwrap();
        let mut refused = policy.refused.iter().flat_map(|refused| &refused.kinds);
        assert!(refused.all(|name| KINDS.contains(&name.as_str())));
        let mut names: Vec<_> = policy.kinds.keys().map(String::as_str).collect();
        names.push(WITH_VOLUMES);
        let mut expected = KINDS.to_vec();
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected);
    }

    #[test]
    fn what_is_refused_or_killed_has_a_reason() {
        let policy = Policy::read().unwrap();
        let refused = policy.refused.iter().flat_map(|refused| &refused.calls);
        for rule in refused.chain(&policy.killed) {
            let args = rule.args.iter().flatten();
            let reasons = args.filter_map(|argument| argument.get("comment")).count();
            assert!(rule.comment.is_some() || reasons > 0, "{}", rule.syscall);
        }
    }

    #[test]
    fn no_rule_is_there_twice() {
        let policy = Policy::read().unwrap();
        for kind in KINDS.into_iter().filter(|kind| *kind != WITH_VOLUMES) {
            let mut seen = Vec::new();
            for rule in policy.rules(kind) {
                let rule = (rule.syscall, rule.args);
                assert!(!seen.contains(&rule), "{kind}: {rule:?}");
                let alone = |(name, args): &(String, Option<Vec<Value>>)| {
                    *name == rule.0 && (args.is_none() || rule.1.is_none())
                };
                assert!(!seen.iter().any(alone), "{kind}: {rule:?}");
                seen.push(rule);
            }
        }
    }

    /// Checks the table in SECURITY.md: how many different calls a kind may make, and for how many of
    /// them the arguments are checked.
    #[test]
    fn the_counts_in_the_documentation_are_true() {
        let text = include_str!("../../../SECURITY.md");
        let policy = Policy::read().unwrap();
        for kind in KINDS {
            let mut is_checked = BTreeMap::new();
            for rule in policy.rules(kind) {
                let checked = is_checked.entry(rule.syscall).or_insert(true);
                *checked &= rule.args.is_some();
            }
            let calls = is_checked.len();
            let checked = is_checked.values().filter(|checked| **checked).count();
            let line = format!("| `{kind}` | {calls} | {checked} |");
            assert!(text.contains(&line), "SECURITY.md lacks: {line}");
        }
    }
}
