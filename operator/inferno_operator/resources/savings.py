"""Savings: what a server cost since it is counted, beside what other policies would have cost."""

from pydantic import ConfigDict

from inferno_operator.resources.schema import (
    ATOMIC,
    Items,
    NonEmptyText,
    NonNegativeInteger,
    Number,
    Part,
    Time,
)


class PolicySpending(Part):
    """What a simulated policy came to with the same load."""

    policy: NonEmptyText
    """hpa or keda-slo."""
    cost: Number
    """What it would have cost [cents]."""
    kept_requests: Number
    """Requests in minutes in which at least 95 % of them would have been within the targets."""


class Savings(Part):
    """The account of a server; costs are in cents, over the time that is counted."""

    model_config = ConfigDict(json_schema_extra=ATOMIC)

    since: Time
    """When the account began."""
    time: Time
    """When it was written."""
    counted_seconds: Number
    """Time that is counted: that in which the load was known [s]."""
    requests: Number
    """Requests that arrived."""
    kept_requests: Number
    """Requests in minutes in which no measured latency missed its target."""
    paid: Number
    """What the replicas that ran cost."""
    planned: Number
    """What the decisions cost."""
    accelerator: NonEmptyText
    """Where the other policies run this server: where it ran when the account began."""
    peak_replicas: NonNegativeInteger
    """Replicas that the highest load so far needed there."""
    static_peak: Number
    """What these replicas would have cost all the time."""
    policies: Items[PolicySpending] = ()
    """The policies that follow the load."""
