"""API keys of tenants. All of these need a key of the scope ``admin``."""

from __future__ import annotations

from typing import Literal

from .._plans import Plan, Request, check, fetch, fetch_all, segment
from ..models import ApiKey, NewKey


def _path(tenant: str) -> str:
    return f"/v1/tenants/{segment(tenant)}/keys"


def create(
    tenant: str, *, scope: Literal["read", "write", "admin"], label: str = ""
) -> Plan[NewKey]:
    """Create an API key for a tenant. This needs a key of the scope ``admin``.

    If the connection breaks, there may be a key that nobody has. The call is not repeated.

    Args:
        tenant: Name of the tenant.
        scope: ``read`` shows the tenant's objects, ``write`` also changes them and runs programs,
            and ``admin`` does everything for every tenant.
        label: A text of at most 256 bytes, which the list of keys shows.

    Returns:
        The key. The daemon does not show it again.

    Raises:
        NotFoundError: There is no such tenant.
        InvalidRequestError: The scope or the label is not valid.
        ForbiddenError: The key of this client has another scope.
        HartlineError: There is no answer, or another error.

    """
    body = {"scope": scope, "label": label}
    return fetch(NewKey, Request("POST", _path(tenant), json=body))


def list_keys(tenant: str) -> Plan[list[ApiKey]]:
    """Return the keys of a tenant, without their secrets. This needs the scope ``admin``.

    Args:
        tenant: Name of the tenant.

    Raises:
        NotFoundError: There is no such tenant.
        ForbiddenError: The key of this client has another scope.
        HartlineError: There is no answer, or another error.

    """
    return fetch_all(ApiKey, _path(tenant))


def delete(tenant: str, key: str) -> Plan[None]:
    """Revoke a key. This needs a key of the scope ``admin``.

    Args:
        tenant: Name of the tenant.
        key: Id of the key, which is not the key itself.

    Raises:
        NotFoundError: There is no such key.
        ForbiddenError: The key of this client has another scope.
        HartlineError: There is no answer, or another error.

    """
    check((yield Request("DELETE", f"{_path(tenant)}/{segment(key)}")))
