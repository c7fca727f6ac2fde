//! The names of the VM that programs can change: `sethostname`, `setdomainname`.

use alloc::string::String;

/// The names of the VM.
#[derive(Debug)]
pub struct UtsNames {
    /// The host name.
    pub node: String,
    /// The NIS domain.
    pub domain: String,
}

impl Default for UtsNames {
    fn default() -> Self {
        Self {
            node: String::from("hartline"),
            domain: String::from("(none)"),
        }
    }
}
