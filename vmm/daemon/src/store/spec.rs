//! The specification of a machine: its program and its resources.

use super::Mount;
use crate::integer;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::openapi::schema::{Array, ArrayBuilder, Object, ObjectBuilder, Type};

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
