"""The names of the lanes, for those who wake them and those who run them: a misspelt one would wake nobody."""

from enum import StrEnum


class LaneName(StrEnum):
    """What runs by itself; `workers.lanes` says how."""

    GENERATION = "generation"
    PRICING = "pricing"
    ISSUANCE = "issuance"
    RECONCILIATION = "reconciliation"
    MIRRORING = "mirroring"
    PUSH = "push"
    PROBE = "probe"
    TEST_CLOCK = "test_clock"
    RETENTION = "retention"
