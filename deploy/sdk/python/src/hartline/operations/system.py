"""The daemon itself."""

from __future__ import annotations

from .._plans import Plan, fetch, get
from ..models import Version


def version() -> Plan[Version]:
    """Return the version of the daemon. This needs no key.

    Raises:
        HartlineError: There is no answer.

    """
    return fetch(Version, get("/version"))
