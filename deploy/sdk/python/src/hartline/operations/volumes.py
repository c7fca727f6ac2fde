"""Volumes: directories that outlive the machines that use them."""

from __future__ import annotations

from .._plans import Plan, Request, check, fetch, fetch_all, get, query, segment
from ..models import Volume


def create(name: str, *, size: int, inodes: int | None = None) -> Plan[Volume]:
    """Create an empty volume.

    Args:
        name: 1 to 63 lower-case letters, digits, ``_``, ``.`` and ``-``. It begins with a letter or
            a digit.
        size: Size limit, bytes, 1 MiB to 1 TiB. It counts toward the tenant's quota.
        inodes: Limit of files, directories and links. The default is as many as fit the size.

    Raises:
        ConflictError: There is such a volume (``volume-exists``), or the quota is used up
            (``storage-quota``).
        HartlineError: There is no answer, or another error.

    """
    body: dict[str, object] = {"name": name, "size": size}
    if inodes is not None:
        body["inodes"] = inodes
    return fetch(Volume, Request("POST", "/v1/volumes", json=body))


def get_volume(name: str) -> Plan[Volume]:
    """Return a volume.

    Args:
        name: Its name.

    Raises:
        NotFoundError: The tenant has no such volume.
        HartlineError: There is no answer, or another error.

    """
    return fetch(Volume, get(f"/v1/volumes/{segment(name)}"))


def list_volumes(*, page_size: int = 1000) -> Plan[list[Volume]]:
    """Return the tenant's volumes, by name.

    Args:
        page_size: Entries that one request asks for, 1 to 1000. All pages are requested.

    Raises:
        HartlineError: There is no answer, or another error.

    """
    return fetch_all(Volume, query("/v1/volumes", limit=page_size))


def delete(name: str) -> Plan[None]:
    """Delete a volume with its contents. A long deletion continues after the answer.

    Args:
        name: Its name.

    Raises:
        NotFoundError: The tenant has no such volume.
        ConflictError: Machines have the volume (``volume-in-use``).
        HartlineError: There is no answer, or another error.

    """
    # The daemon answers after 20 s at most.
    check((yield Request("DELETE", f"/v1/volumes/{segment(name)}", delay=20)))
