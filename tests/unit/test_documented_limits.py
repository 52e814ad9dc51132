"""The numbers in the decisions equal those in the code. Other tests use smaller numbers, so they do not check this."""

import re

import pytest

from fatura.outbound.http import MAX_WAIT_SECONDS, call_limits
from fatura.usecases.accounts import api_keys
from fatura.usecases.deps import KEEP_CHECKS_SECONDS
from fatura.usecases.sandbox import test_clock
from fatura.workers import lanes
from tests.tidy.sources import ROOT

DECISIONS = (ROOT / "docs/decisions.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("decision", "says"),
    [
        ("D-189", f"has at most {api_keys.MAX_API_KEYS} API keys that are neither revoked nor expired"),
        ("D-202", f"are kept for {['no', 'one'][KEEP_CHECKS_SECONDS]} second"),
        (
            "D-214",
            f"bills at most {lanes.CLOCK_BATCH} subscriptions of an advancing account in one transaction",
        ),
        ("D-214", f"After {test_clock.RUN_SECONDS} seconds, or {test_clock.MAX_WORK:,} pieces of work"),
        ("D-215", f"an account has at most {call_limits.MAX_CALLS_OF_ACCOUNT} calls to its endpoints open"),
        ("D-215", f"at most {call_limits.MAX_CALLS_TO_ADDRESS} calls open to one IP address"),
        ("D-215", f"A call above a limit waits up to {MAX_WAIT_SECONDS} seconds"),
    ],
)
def test_the_decisions_name_the_limits_of_the_code(decision: str, says: str) -> None:
    """[D-189, D-202, D-214, D-215]"""
    section = re.search(rf"^### {decision} .*?(?=^### )", DECISIONS, re.MULTILINE | re.DOTALL)
    assert section
    assert says in " ".join(section[0].split())
