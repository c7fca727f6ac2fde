//! Settings of the KVM module that is loaded: its parameters in `/sys/module`.

use super::KvmKind;
use serde::Serialize;
use std::fs;

/// Settings of the KVM module; `None` where the kind of KVM has no such setting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Virtualization {
    /// Nested page tables: EPT or NPT.
    pub nested_paging: Option<bool>,
    /// VT-x: guest states that need no emulation.
    pub unrestricted_guest: Option<bool>,
    /// Interrupts reach the guest without an exit: APICv or AVIC.
    pub interrupt_virtualization: Option<bool>,
}

impl Virtualization {
    /// Of the module that is loaded.
    #[must_use]
    pub fn detect(kind: KvmKind) -> Self {
        let read = |name: &str| {
            let path = format!("/sys/module/{}/parameters/{name}", kind.module());
            parse_switch(&fs::read_to_string(path).ok()?)
        };
        match kind {
            KvmKind::Intel => Self {
                nested_paging: read("ept"),
                unrestricted_guest: read("unrestricted_guest"),
                interrupt_virtualization: read("enable_apicv"),
            },
            KvmKind::Amd => Self {
                nested_paging: read("npt"),
                unrestricted_guest: None,
                interrupt_virtualization: read("avic"),
            },
            KvmKind::Pvm | KvmKind::Unknown => Self::default(),
        }
    }
}

/// A boolean module parameter: `Y`/`N`, or 1/0 where it is an integer.
fn parse_switch(text: &str) -> Option<bool> {
    match text.trim() {
        "Y" | "y" | "1" => Some(true),
        "N" | "n" | "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_parsed() {
        assert_eq!(parse_switch("Y\n"), Some(true));
        assert_eq!(parse_switch("0\n"), Some(false));
        assert_eq!(parse_switch("auto"), None);
    }
}
