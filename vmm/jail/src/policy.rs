//! The policy of the jail, `policy.json`: the system calls that each kind of thread may make.
//!
//! Rules have the format of the seccompiler crate. A call that no rule of its kind allows ends the
//! process. Calls in `refused` fail instead: the program's libraries try them and can do without.
//! Calls in `killed` end the process without a report.

use super::filter::{FilterError, Kind, Role};
use hartline_vmm::confine::Thread;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

const POLICY: &str = include_str!("policy.json");

/// A system call, and the conditions for its arguments.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    syscall: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    args: Option<Vec<Value>>,
}

/// Calls that fail with an error.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refused {
    /// The error's number.
    pub(super) errno: u16,
    /// The kinds of threads that may try them; all if there are none.
    #[serde(default)]
    kinds: Vec<String>,
    /// The calls; the comment of each names the code that makes it.
    pub(super) calls: Vec<Rule>,
}

/// The policy in the format of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Policy {
    /// Calls that libraries try and can do without.
    refused: Vec<Refused>,
    /// Calls that end the process without a report.
    pub(super) killed: Vec<Rule>,
    /// Calls that all kinds may make.
    common: Vec<Rule>,
    /// Additional calls of each kind, by its name.
    kinds: BTreeMap<String, Vec<Rule>>,
}

/// The number of different system calls that a kind of thread may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallCount {
    /// All calls.
    pub calls: usize,
    /// Calls with checked arguments.
    pub checked: usize,
}

impl Policy {
    pub(super) fn read() -> Result<Self, FilterError> {
        Ok(serde_json::from_str(POLICY)?)
    }

    /// All rules of a kind. A VMM with volumes may make the calls of its threads too.
    pub(super) fn rules(&self, kind: Kind) -> Vec<Rule> {
        let parts = match kind {
            Kind::Role(Role::VmmWithVolumes) => {
                vec![Kind::Role(Role::Vmm), Kind::Thread(Thread::Volumes)]
            }
            kind => vec![kind],
        };
        let own = parts.iter().filter_map(|kind| self.kinds.get(kind.name()));
        self.common.iter().chain(own.flatten()).cloned().collect()
    }

    /// The refused calls of a kind.
    pub(super) fn refused(&self, kind: Kind) -> impl Iterator<Item = &Refused> {
        let is_for = move |refused: &&Refused| {
            refused.kinds.is_empty() || refused.kinds.iter().any(|name| name == kind.name())
        };
        self.refused.iter().filter(is_for)
    }

    /// Counts the calls of a kind.
    fn count(&self, kind: Kind) -> CallCount {
        let mut is_checked = BTreeMap::new();
        for rule in self.rules(kind) {
            let checked = is_checked.entry(rule.syscall).or_insert(true);
            *checked &= rule.args.is_some();
        }
        CallCount {
            calls: is_checked.len(),
            checked: is_checked.values().filter(|checked| **checked).count(),
        }
    }
}

/// The number of system calls that each kind of thread may make.
///
/// # Errors
/// The policy is invalid: a bug in it.
pub fn call_counts() -> Result<Vec<(Kind, CallCount)>, FilterError> {
    let policy = Policy::read()?;
    Ok(Kind::ALL.map(|kind| (kind, policy.count(kind))).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_are_there_and_no_others() {
        let policy = Policy::read().unwrap();
        let all = Kind::ALL.map(Kind::name);
        let mut refused = policy.refused.iter().flat_map(|refused| &refused.kinds);
        assert!(refused.all(|name| all.contains(&name.as_str())));
        let mut names: Vec<_> = policy.kinds.keys().map(String::as_str).collect();
        names.push(Kind::Role(Role::VmmWithVolumes).name());
        let mut expected = all.to_vec();
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
        for kind in Kind::ALL {
            if kind == Kind::Role(Role::VmmWithVolumes) {
                continue;
            }
            let mut seen = Vec::new();
            for rule in policy.rules(kind) {
                let rule = (rule.syscall, rule.args);
                assert!(!seen.contains(&rule), "{}: {rule:?}", kind.name());
                let alone = |(name, args): &(String, Option<Vec<Value>>)| {
                    *name == rule.0 && (args.is_none() || rule.1.is_none())
                };
                assert!(!seen.iter().any(alone), "{}: {rule:?}", kind.name());
                seen.push(rule);
            }
        }
    }

    /// Checks the table in SECURITY.md.
    #[test]
    fn the_counts_in_the_documentation_are_true() {
        let text = include_str!("../../../SECURITY.md");
        for (kind, count) in call_counts().unwrap() {
            let CallCount { calls, checked } = count;
            let line = format!("| `{}` | {calls} | {checked} |", kind.name());
            assert!(text.contains(&line), "SECURITY.md lacks: {line}");
        }
    }
}
