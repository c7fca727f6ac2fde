"""Secrets: values that programs get as files or environment variables."""

from __future__ import annotations

from .._plans import Plan, Request, Upload, check, fetch_all, query, segment
from ..models import Secret


def put(name: str, contents: bytes | str) -> Plan[bool]:
    """Create or change a secret. The daemon stores it encrypted and does not show it again.

    Args:
        name: 1 to 63 letters, digits, ``_``, ``.`` and ``-``. It begins with a letter, a digit or
            ``_``.
        contents: 1 to 65,536 bytes of any kind.

    Returns:
        Whether the secret is new.

    Raises:
        InvalidRequestError: The name or the contents are not valid.
        ConflictError: The tenant has too many secrets (``too-many-secrets``).
        HartlineError: There is no answer, or another error.

    """
    data = contents.encode() if isinstance(contents, str) else contents
    headers = {"Content-Type": "application/octet-stream"}
    path = f"/v1/secrets/{segment(name)}"
    request = Request("PUT", path, upload=Upload(data), headers=headers, is_repeatable=True)
    created = 201
    return check((yield request)).status == created


def list_secrets(*, page_size: int = 1000) -> Plan[list[Secret]]:
    """Return the tenant's secrets without their contents, by name.

    Args:
        page_size: Entries that one request asks for, 1 to 1000. All pages are requested.

    Raises:
        HartlineError: There is no answer, or another error.

    """
    return fetch_all(Secret, query("/v1/secrets", limit=page_size))


def delete(name: str) -> Plan[None]:
    """Delete a secret.

    Args:
        name: Its name.

    Raises:
        NotFoundError: The tenant has no such secret.
        ConflictError: Machines have the secret (``secret-in-use``).
        HartlineError: There is no answer, or another error.

    """
    check((yield Request("DELETE", f"/v1/secrets/{segment(name)}")))
