//! The specification of a machine: its program and its resources.

use super::Mount;
use crate::integer;
use hartline_abi::spawn::Window;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use utoipa::openapi::schema::{
    Array, ArrayBuilder, Object, ObjectBuilder, OneOfBuilder, Schema, SchemaFormat, Type,
};

/// The program of a machine, with its resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Id of an uploaded program, a unique begin of it, or the program's name.
    #[schema(min_length = 1, max_length = 255)]
    pub program: String,
    /// Path of the program in an uploaded root file system; empty for an upload that is one ELF
    /// file.
    #[serde(default)]
    #[schema(pattern = "^[^\\x00]+$")]
    pub path: Option<String>,
    /// Arguments, without the program's own name.
    #[serde(default)]
    #[schema(schema_with = arguments_schema)]
    pub args: Vec<String>,
    /// Environment variables.
    #[serde(default)]
    #[schema(schema_with = environment_schema)]
    pub env: BTreeMap<String, String>,
    /// Number of vCPUs.
    #[serde(default = "default_cpus", deserialize_with = "integer::unsigned")]
    #[schema(minimum = 1, maximum = 64)]
    pub cpus: u32,
    /// Memory, bytes.
    #[serde(default = "default_memory", deserialize_with = "integer::unsigned")]
    #[schema(minimum = 67108864, maximum = 270582939648i64)]
    pub memory: u64,
    /// Time limit, milliseconds. After it, the program ends with exit code 124.
    #[serde(default, deserialize_with = "integer::optional")]
    #[schema(minimum = 1, maximum = 2592000000i64)]
    pub timeout_ms: Option<u64>,
    /// Labels of the machine.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Keep standard input open for clients that attach; otherwise it is empty.
    #[serde(default)]
    pub interactive: bool,
    /// Volumes of the tenant, each once.
    // Not written if empty: hashes of idempotent requests cover the written form.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 8)]
    pub volumes: Vec<Mount>,
    /// The CPUs that the machine runs on.
    #[serde(default, skip_serializing_if = "CpuClass::is_shared")]
    pub cpu_class: CpuClass,
    /// The network of the machine.
    #[serde(default, skip_serializing_if = "NetworkKind::is_none")]
    pub network: NetworkKind,
    /// User of the program in its VM, and its group (0 if there is none), as numbers: `UID` or
    /// `UID:GID`. The default is root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(:[0-9]{1,9})?$")]
    pub user: Option<User>,
    /// Directory in which the program starts. The default is `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^/[^\\x00]*$", max_length = 4095)]
    pub workdir: Option<String>,
    /// Host name of the VM, which is also in `HOSTNAME`. The default is `hartline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$")]
    pub hostname: Option<String>,
    /// Mount the root file system read-only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// TCP ports of the host whose connections lead to ports of the machine, which must be in the
    /// network of the tenant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub ports: Vec<Port>,
    /// Id of the snapshot that the machine continues, a unique begin of it, or the snapshot's name. The
    /// program, its place, its memory and its network are those of the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 63)]
    pub snapshot: Option<String>,
    /// What happens when the program has ended: `no`, `on-failure`, `on-failure:N` (at most N
    /// restarts) or `always`. A machine that a client stops is not restarted.
    #[serde(default, skip_serializing_if = "Restart::is_no")]
    #[schema(value_type = String, required = false, default = "no",
        pattern = "^(no|always|on-failure(:[1-9][0-9]{0,4})?)$")]
    pub restart: Restart,
    /// Run the program of a machine on a terminal of this size. Then all output is standard output, and
    /// the end of standard input is not the end of file, which is the character control-D (4). `TERM` is
    /// `xterm` unless it has another value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
    /// Secrets of the tenant that the program gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub secrets: Vec<SecretUse>,
    /// Delete the machine ten seconds after its end. Until then clients can read its exit code and
    /// output. It needs the restart policy `no`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auto_remove: bool,
    /// Suspend the machine when it has been idle for so many seconds: no task of it could run, and it
    /// had no input. It goes on when it is started, or gets input, a command or a connection to a
    /// published port. A machine that cannot have a snapshot cannot be suspended.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    #[schema(minimum = 1, maximum = 2592000)]
    pub idle_timeout_s: Option<u64>,
    /// The receiver of the message that the program of the machine, or the run, has ended. With a
    /// restart policy, there is a message for the last end only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
    /// Longest core dump, bytes: when a signal such as SIGSEGV ends a process of the machine, the first
    /// core dump is kept with the machine. The program then runs with exact registers at every access
    /// to memory, which makes it slower. Without a limit there is no core dump.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "integer::optional"
    )]
    #[schema(minimum = 1048576, maximum = 1099511627776i64)]
    pub core_limit: Option<u64>,
}

/// The receiver of a message about an end. The message is signed as Standard Webhooks says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// Address of the receiver, which gets a POST request.
    #[schema(format = "uri", pattern = "^https?://", max_length = 2048)]
    pub url: String,
    /// Name of the tenant's secret that signs. Its contents are the key, or `whsec_` and the key in
    /// Base64.
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$")]
    pub secret: String,
}

/// A secret that a program gets: as a file, unless it gets the secret as an environment variable only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretUse {
    /// Name of the secret.
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$")]
    pub secret: String,
    /// Name of the file in `/run/secrets`, which only the program's user may read. The default is the
    /// secret's name, or no file if there is an environment variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$")]
    pub file: Option<String>,
    /// Name of the environment variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[^=\\x00]+$")]
    pub env: Option<String>,
}

impl SecretUse {
    /// The name of the file, if there is one.
    #[must_use]
    pub fn file_name(&self) -> Option<&str> {
        match (&self.file, &self.env) {
            (Some(name), _) => Some(name),
            (None, Some(_)) => None,
            (None, None) => Some(&self.secret),
        }
    }
}

/// The size of a terminal, characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    /// Lines.
    #[serde(default = "default_rows")]
    #[schema(value_type = u16, minimum = 1, maximum = 65535, default = 24)]
    rows: NonZeroU16,
    /// Characters of a line.
    #[serde(default = "default_columns")]
    #[schema(value_type = u16, minimum = 1, maximum = 65535, default = 80)]
    columns: NonZeroU16,
}

const fn default_rows() -> NonZeroU16 {
    NonZeroU16::new(24).unwrap()
}

const fn default_columns() -> NonZeroU16 {
    NonZeroU16::new(80).unwrap()
}

impl TerminalSize {
    /// Lines, and characters of a line.
    #[must_use]
    pub fn size(self) -> (u16, u16) {
        (self.rows.get(), self.columns.get())
    }
}

impl From<TerminalSize> for Window {
    fn from(size: TerminalSize) -> Self {
        Self {
            rows: size.rows.get(),
            columns: size.columns.get(),
        }
    }
}

/// The restart policy of a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Restart {
    /// No restart.
    #[default]
    No,
    /// Restarts after exit codes other than 0, and after failures: at most this many in a row.
    OnFailure(Option<u32>),
    /// Restarts after every end.
    Always,
}

impl Restart {
    fn is_no(&self) -> bool {
        *self == Self::No
    }
}

impl From<Restart> for String {
    fn from(restart: Restart) -> Self {
        match restart {
            Restart::No => "no".to_owned(),
            Restart::OnFailure(None) => "on-failure".to_owned(),
            Restart::OnFailure(Some(most)) => format!("on-failure:{most}"),
            Restart::Always => "always".to_owned(),
        }
    }
}

impl TryFrom<String> for Restart {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let number = |text: &str| {
            let is_plain = (1..=5).contains(&text.len())
                && text.bytes().all(|b| b.is_ascii_digit())
                && !text.starts_with('0');
            text.parse().ok().filter(|_| is_plain)
        };
        let found = match text.as_str() {
            "no" => Some(Self::No),
            "always" => Some(Self::Always),
            "on-failure" => Some(Self::OnFailure(None)),
            text => text
                .strip_prefix("on-failure:")
                .and_then(number)
                .map(|most| Self::OnFailure(Some(most))),
        };
        found.ok_or("must be no, always, on-failure or on-failure:N, with a number up to 99999")
    }
}

/// A published port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Address of the host, one of those that the operator allows. The default is the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = address_schema)]
    pub address: Option<IpAddr>,
    /// Port of the host, one of those that the operator allows.
    #[serde(deserialize_with = "integer::unsigned")]
    #[schema(minimum = 1024, maximum = 65535)]
    pub host: u16,
    /// Port of the machine.
    #[serde(deserialize_with = "integer::unsigned")]
    #[schema(minimum = 1, maximum = 65535)]
    pub guest: u16,
}

/// A user and a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct User(u32, u32);

impl User {
    /// The numbers of user and group.
    #[must_use]
    pub fn ids(self) -> (u32, u32) {
        (self.0, self.1)
    }
}

impl From<User> for String {
    fn from(User(user, group): User) -> Self {
        format!("{user}:{group}")
    }
}

impl TryFrom<String> for User {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let number = |text: &str| {
            let is_plain =
                (1..=9).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
            text.parse().ok().filter(|_| is_plain)
        };
        let (user, group) = text.split_once(':').unwrap_or((&text, "0"));
        let ids = number(user).zip(number(group));
        let ids = ids.ok_or("must be UID or UID:GID, each a number of at most 9 digits")?;
        Ok(Self(ids.0, ids.1))
    }
}

/// The CPUs that a machine runs on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CpuClass {
    /// CPUs that other machines use too.
    #[default]
    Shared,
    /// A dedicated CPU for each vCPU, and one for the devices.
    Dedicated,
}

impl CpuClass {
    fn is_shared(&self) -> bool {
        *self == Self::Shared
    }
}

/// The network of a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkKind {
    /// No network interface.
    #[default]
    None,
    /// The network of the tenant.
    Tenant,
}

impl NetworkKind {
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

fn string_schema(pattern: &str) -> ObjectBuilder {
    let string = ObjectBuilder::new().schema_type(Type::String);
    string.pattern(Some(pattern))
}

fn arguments_schema() -> Array {
    let items = string_schema("^[^\\x00]*$");
    ArrayBuilder::new().items(items).build()
}

/// An IPv4 or IPv6 address, or null.
fn address_schema() -> Schema {
    let formats = ["ipv4", "ipv6"].map(|format| {
        let string = ObjectBuilder::new().schema_type(Type::String);
        string.format(Some(SchemaFormat::Custom(format.to_owned())))
    });
    let null = ObjectBuilder::new().schema_type(Type::Null);
    let kinds = formats.into_iter().chain([null]);
    let all = OneOfBuilder::new();
    Schema::OneOf(kinds.fold(all, |all, kind| all.item(kind)).build())
}

fn environment_schema() -> Object {
    ObjectBuilder::new()
        .property_names(Some(string_schema("^[^=\\x00]+$").build()))
        .additional_properties(Some(string_schema("^[^\\x00]*$")))
        .build()
}

fn default_cpus() -> u32 {
    1
}

fn default_memory() -> u64 {
    256 << 20
}
