"""The operations of the API as plans, which both clients execute."""
