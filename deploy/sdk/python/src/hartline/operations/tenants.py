"""Tenants, their quotas and what they use."""

from __future__ import annotations

from dataclasses import asdict

from .._plans import Plan, Request, check, fetch, fetch_all, get, segment
from ..models import Tenant, Use


def _path(tenant: str) -> str:
    return f"/v1/tenants/{segment(tenant)}"


def _put(tenant: str, limits: dict[str, int]) -> Plan[Tenant]:
    request = Request("PUT", _path(tenant), json=limits, is_repeatable=True)
    return fetch(Tenant, request)


def put(
    tenant: str,
    *,
    weight: int | None = None,
    max_machines: int | None = None,
    max_memory: int | None = None,
    max_queued: int | None = None,
    max_storage: int | None = None,
    max_inodes: int | None = None,
) -> Plan[Tenant]:
    """Create a tenant, or replace its whole quota. This needs a key of the scope ``admin``.

    A limit that is not given is the daemon's default, also if the tenant exists:
    see :meth:`change`.

    Args:
        tenant: Its name: 1 to 63 lower-case letters, digits and hyphens.
        weight: Weight of its share of the CPUs when tenants compete, 1 to 10000.
        max_machines: Most machines and runs that run at once.
        max_memory: Memory of the running machines and runs, bytes.
        max_queued: Most machines and runs that wait for the scheduler.
        max_storage: Storage, bytes.
        max_inodes: Files, directories and links of this storage on the host.

    Raises:
        InvalidRequestError: The name or a limit is not valid.
        ForbiddenError: The key has another scope.
        HartlineError: There is no answer, or another error.

    """
    return _put(
        tenant, _given(weight, max_machines, max_memory, max_queued, max_storage, max_inodes)
    )


def change(
    tenant: str,
    *,
    weight: int | None = None,
    max_machines: int | None = None,
    max_memory: int | None = None,
    max_queued: int | None = None,
    max_storage: int | None = None,
    max_inodes: int | None = None,
) -> Plan[Tenant]:
    """Change some limits of a tenant. This needs a key of the scope ``admin``.

    The call reads the quota and writes it. A change by another client in between is lost.

    Args:
        tenant: Its name.
        weight: Weight of its share of the CPUs when tenants compete, 1 to 10000.
        max_machines: Most machines and runs that run at once.
        max_memory: Memory of the running machines and runs, bytes.
        max_queued: Most machines and runs that wait for the scheduler.
        max_storage: Storage, bytes.
        max_inodes: Files, directories and links of this storage on the host.

    Raises:
        NotFoundError: There is no such tenant.
        InvalidRequestError: A limit is not valid.
        ForbiddenError: The key has another scope.
        HartlineError: There is no answer, or another error.

    """
    given = _given(weight, max_machines, max_memory, max_queued, max_storage, max_inodes)
    present = yield from get_tenant(tenant)
    return (yield from _put(tenant, asdict(present.quota) | given))


def _given(
    weight: int | None,
    max_machines: int | None,
    max_memory: int | None,
    max_queued: int | None,
    max_storage: int | None,
    max_inodes: int | None,
) -> dict[str, int]:
    limits = {
        "weight": weight,
        "max_machines": max_machines,
        "max_memory": max_memory,
        "max_queued": max_queued,
        "max_storage": max_storage,
        "max_inodes": max_inodes,
    }
    return {name: limit for name, limit in limits.items() if limit is not None}


def list_tenants() -> Plan[list[Tenant]]:
    """Return all tenants, by name. This needs a key of the scope ``admin``.

    Raises:
        ForbiddenError: The key has another scope.
        HartlineError: There is no answer, or another error.

    """
    return fetch_all(Tenant, "/v1/tenants")


def delete(tenant: str) -> Plan[None]:
    """Delete a tenant, with its keys. This needs a key of the scope ``admin``.

    Args:
        tenant: Its name.

    Raises:
        ConflictError: The tenant has machines, runs, programs, volumes or snapshots
            (``tenant-in-use``), or it is the one that always exists (``default-tenant``).
        NotFoundError: There is no such tenant.
        ForbiddenError: The key has another scope.
        HartlineError: There is no answer, or another error.

    """
    check((yield Request("DELETE", _path(tenant))))


def get_tenant(tenant: str) -> Plan[Tenant]:
    """Return a tenant with its quota.

    Args:
        tenant: Its name. A key without the scope ``admin`` shows only its own tenant.

    Raises:
        ForbiddenError: It is another tenant.
        NotFoundError: There is no such tenant.
        HartlineError: There is no answer, or another error.

    """
    return fetch(Tenant, get(_path(tenant)))


def usage(tenant: str) -> Plan[list[Use]]:
    """Return the resources that a tenant uses, and their limits.

    Args:
        tenant: Its name. A key without the scope ``admin`` shows only its own tenant.

    Raises:
        ForbiddenError: It is another tenant.
        NotFoundError: There is no such tenant.
        HartlineError: There is no answer, or another error.

    """
    return fetch_all(Use, f"{_path(tenant)}/usage")
