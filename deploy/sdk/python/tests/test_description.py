"""The package compared with the daemon's description of its API (OpenAPI)."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from daemon import Daemon

from hartline import models, spec

PRESENT = {
    "attach_to_machine", "copy_from_machine", "copy_to_machine",
    "create_attached_run", "create_key", "create_machine", "create_run", "create_snapshot",
    "create_volume", "debug_machine", "delete_key", "delete_machine", "delete_program",
    "delete_run",
    "delete_secret", "delete_snapshot", "delete_tenant", "delete_volume", "exec_in_machine",
    "exec_in_machine_interactively",
    "get_file_type", "get_health", "get_history", "get_identity", "get_machine", "get_machine_core",
    "get_machine_logs",
    "get_machine_stats", "get_metrics", "get_program", "get_readiness", "get_run", "get_run_logs",
    "get_snapshot", "get_tenant", "get_tenant_usage", "get_version", "get_volume", "kill_machine",
    "limit_machine_network", "list_keys", "list_machines", "list_programs", "list_runs",
    "list_deliveries", "list_secrets", "list_snapshots", "list_tenants", "list_volumes",
    "pause_machine", "put_secret",
    "resume_machine", "set_tenant", "start_machine", "stop_machine", "suspend_machine",
    "upload_program",
    "wait_for_machine", "watch_events",
}  # fmt: skip
"""Operations of the API that the clients have."""
SCHEMAS: Mapping[str, Any] = {
    "ApiKey": models.ApiKey,
    "Delivery": models.Delivery,
    "ExecEnd": models.ExecEnd,
    "ExecResult": models.ExecResult,
    "Exits": models.Exits,
    "Identity": models.Identity,
    "KeyMade": models.NewKey,
    "KvmReasons": models.KvmReasons,
    "MachineEvent": models.MachineEvent,
    "MachineView": models.Machine,
    "Mount": spec.Mount,
    "Port": spec.Port,
    "NetworkLimits": models.NetworkLimits,
    "ProgramStatus": models.Program,
    "Quota": models.Quota,
    "Readiness": models.Readiness,
    "RunEntry": models.RunEntry,
    "RunOutcome": models.RunOutcome,
    "RunStatus": models.Run,
    "Sample": models.Sample,
    "SecretUse": spec.SecretUse,
    "SnapshotEvent": models.SnapshotEvent,
    "SnapshotView": models.Snapshot,
    "Spec": spec.Spec,
    "Stats": models.Stats,
    "StoredSecret": models.Secret,
    "Tenant": models.Tenant,
    "Traffic": models.Traffic,
    "Use": models.Use,
    "Version": models.Version,
    "Volume": models.Volume,
    "Webhook": spec.Webhook,
}
COMPLETE = {"NetworkLimits", "Quota"}
"""Schemas of requests too. Only in these can fields be missing."""


@pytest.fixture(scope="session")
def description(daemon: Daemon) -> Any:
    return daemon.http.get("/openapi.json").raise_for_status().json()


def test_operations(description: Any) -> None:
    found = {
        operation["operationId"]
        for operations in description["paths"].values()
        for operation in operations.values()
    }
    assert found == PRESENT


@pytest.mark.parametrize("name", SCHEMAS)
def test_fields(description: Any, name: str) -> None:
    schemas = description["components"]["schemas"]
    properties, required = merged(schemas, schemas[name])
    if name in COMPLETE:
        required = set(properties)
    kind = SCHEMAS[name]
    own = {field.name: field for field in fields(kind)}
    assert own.keys() == properties.keys()
    hints = get_type_hints(kind)
    for field, schema in properties.items():
        can_be_missing = own[field].default is not MISSING or (
            own[field].default_factory is not MISSING
        )
        # A field that is missing is None, if it may be.
        assert field in required or can_be_missing or is_optional(hints[field]), field
        assert is_optional(hints[field]) or not is_nullable(schema), field


def merged(schemas: Any, schema: Any) -> tuple[dict[str, Any], set[str]]:
    """Return the properties of a schema and the names of the required ones."""
    if "$ref" in schema:
        return merged(schemas, schemas[schema["$ref"].rsplit("/", 1)[1]])
    properties, required = dict(schema.get("properties", {})), set(schema.get("required", []))
    for part in schema.get("allOf", []):
        more, needed = merged(schemas, part)
        properties |= more
        required |= needed
    return properties, required


def is_nullable(schema: Any) -> bool:
    kinds = schema.get("type", [])
    parts = schema.get("oneOf", []) + schema.get("anyOf", [])
    return "null" in ([kinds] if isinstance(kinds, str) else kinds) or any(
        part.get("type") == "null" for part in parts
    )


def is_optional(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType) and types.NoneType in get_args(kind)
