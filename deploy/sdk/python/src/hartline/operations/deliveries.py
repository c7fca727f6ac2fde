"""Deliveries: webhooks that wait for their receivers."""

from __future__ import annotations

from .._plans import Plan, fetch_all, query
from ..models import Delivery


def list_deliveries(*, page_size: int = 1000) -> Plan[list[Delivery]]:
    """Return the tenant's webhooks that wait for their receivers, by id.

    Args:
        page_size: Entries that one request asks for, 1 to 1000. All pages are requested.

    Raises:
        HartlineError: There is no answer, or another error.

    """
    return fetch_all(Delivery, query("/v1/deliveries", limit=page_size))
