"""The daemon itself."""

from __future__ import annotations

from .._decode import decode
from .._plans import Plan, check, fetch, get, parse
from ..models import Readiness, Version

UNAVAILABLE = 503
"""The status of :func:`readiness` if the daemon cannot run programs, and of other failures."""


def version() -> Plan[Version]:
    """Return the version of the daemon. This needs no key.

    Raises:
        HartlineError: There is no answer.

    """
    return fetch(Version, get("/version"))


def check_health() -> Plan[None]:
    """Check that the daemon answers. This needs no key.

    Raises:
        HartlineError: It does not.

    """
    check((yield get("/healthz")))


def readiness() -> Plan[Readiness]:
    """Return whether the daemon can run programs.

    This needs a key, unless the daemon's configuration has ``public_health``.

    Raises:
        HartlineError: There is no answer, or another error. That the daemon is not ready is no
            error.

    """
    answer = yield get("/readyz")
    # Errors have the type application/problem+json.
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if not (answer.status == UNAVAILABLE and kind == "application/json"):
        check(answer)
    return decode(Readiness, parse(answer.body), "Readiness")


def metrics() -> Plan[str]:
    """Return the daemon's metrics, in the format OpenMetrics of Prometheus.

    This needs a key of the scope ``admin``. If the daemon's configuration has ``public_health``,
    other clients get the metrics without figures of single tenants.

    Raises:
        ForbiddenError: The key has another scope.
        HartlineError: There is no answer, or another error.

    """
    return check((yield get("/metrics"))).body.decode(errors="replace")
