"""Tenants, their quotas and what they use."""

from __future__ import annotations

from .._plans import Plan, fetch, fetch_all, get, segment
from ..models import Tenant, Use


def _path(tenant: str) -> str:
    return f"/v1/tenants/{segment(tenant)}"


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
