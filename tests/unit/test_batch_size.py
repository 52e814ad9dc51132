"""The size of generation's batches adapts, so that a batch takes about the same time on any machine."""

import pytest

from fatura.usecases.batch_size import LEAST, MOST, TARGET_SECONDS, BatchSize


@pytest.mark.parametrize(
    ("milliseconds_each", "size"),
    [(0.01, MOST), (0.4, 500), (1, 200), (20, LEAST)],
)
def test_the_size_follows_the_measured_time(milliseconds_each: float, size: int) -> None:
    """[D-28]"""
    batch = BatchSize()
    for _ in range(20):
        batch.note(batch.current, seconds=batch.current * milliseconds_each / 1000)
    assert abs(batch.current - size) <= 1
    assert size in {LEAST, MOST} or abs(batch.current * milliseconds_each / 1000 - TARGET_SECONDS) < 0.01


def test_the_last_small_batch_of_a_run_changes_nothing() -> None:
    batch = BatchSize()
    batch.note(3, seconds=2)
    batch.note(0, seconds=0.001)
    assert batch.current == MOST


def test_a_batch_that_was_slow_once_is_forgotten() -> None:
    batch = BatchSize()
    batch.note(MOST, seconds=60)
    assert batch.current < MOST
    for _ in range(20):
        batch.note(batch.current, seconds=0.01)
    assert batch.current == MOST


def test_failed_batches_become_smaller_down_to_the_least_size() -> None:
    batch = BatchSize()
    for _ in range(20):
        batch.note_failure()
    assert batch.current == LEAST
    batch.note(LEAST, seconds=0.001)
    assert batch.current > LEAST
