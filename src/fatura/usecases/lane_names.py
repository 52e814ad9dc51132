"""The names of the lanes of background work."""

from enum import StrEnum


class LaneName(StrEnum):
    """A kind of background work; `workers.lanes` defines how it runs."""

    GENERATION = "generation"
    PRICING = "pricing"
    ISSUANCE = "issuance"
    RECONCILIATION = "reconciliation"
    MIRRORING = "mirroring"
    PUSH = "push"
    PROBE = "probe"
    TEST_CLOCK = "test_clock"
    RETENTION = "retention"
