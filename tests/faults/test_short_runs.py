"""The fault runs at small scale. `constraints` and `orders` have test files of their own."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.faults.crashes import run as crashes
from tests.faults.database import run as database
from tests.faults.gateway import run as gateway
from tests.faults.neighbours import run as neighbours
from tests.faults.probes import bad_requests
from tests.faults.probes import run as probes
from tests.faults.providers import run as providers
from tests.faults.report import Options, Report
from tests.faults.restore import run as restore
from tests.faults.secrets import run as secrets
from tests.faults.simulator import run as simulator
from tests.tidy.sources import ROOT

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]
"""Time limit for a busy machine. On an idle one, each test takes at most one minute."""


def assert_no_failures(run: Callable[[Options], Report]) -> None:
    report = run(Options())
    assert not report.failures, report.failures


def test_every_flow_survives_kills_at_a_sample_of_its_points() -> None:
    """[D-14] [D-33] [D-45]"""
    assert_no_failures(crashes.run)


@pytest.mark.last
def test_no_acknowledged_write_is_lost_when_the_database_is_killed() -> None:
    """[D-14] [D-100]"""
    assert_no_failures(database.run)


@pytest.mark.last
def test_each_invoice_is_charged_once_despite_lost_answers_and_killed_workers() -> None:
    """[D-33] [D-35 polling]"""
    assert_no_failures(gateway.run)


@pytest.mark.last
def test_the_adapters_charge_each_invoice_once_at_their_simulated_providers() -> None:
    """[D-33, D-125, D-261, D-262, D-263, D-265]"""
    assert_no_failures(providers.run)


@pytest.mark.alone
def test_a_hanging_endpoint_does_not_delay_other_merchants() -> None:
    """[D-39 fair, D-31]"""
    assert_no_failures(neighbours.run)


def test_bad_requests_are_refused_and_change_nothing() -> None:
    """[D-8] [D-10] [D-11] [D-12] [D-13] [spec 7 400]"""
    assert_no_failures(bad_requests.run)


def test_bad_requests_are_refused_without_assertions_too() -> None:
    """Bad requests are refused even if Python runs with -O, which removes the engine's assertions. [D-220] [D-11]"""
    environment = {**os.environ, "PYTHONOPTIMIZE": "1"}  # the processes that the run starts inherit it
    ended = subprocess.run(
        [sys.executable, "-m", "tests.faults", "bad-requests", "--short"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, (ended.stdout[-4000:], ended.stderr[-2000:])


def test_another_accounts_ids_answer_like_unknown_ones() -> None:
    """[spec 5.4] [spec 5.2] [D-11] [D-14]"""
    assert_no_failures(probes.run)


def test_no_charge_is_made_twice_or_lost_by_a_restore() -> None:
    """[D-123, D-33]"""
    assert_no_failures(restore.run)


def test_secrets_stay_sealed_and_readable_during_rotation() -> None:
    """[D-15] [D-41] [D-42] [D-43]"""
    assert_no_failures(secrets.run)


def test_worlds_have_no_problem_and_the_same_seed_gives_the_same_trace() -> None:
    """[D-28] [D-33] [D-38] [D-39] [D-53] [D-151] [D-161]"""
    assert_no_failures(simulator.run)
