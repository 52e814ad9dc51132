"""The calendar of cycles, compared with date arithmetic of PostgreSQL."""

from datetime import date

import asyncpg

from fatura.domain.calendar import next_period_start

PERIODS = (1, 3, 6, 12)
YEARS = 40


async def test_due_dates_equal_the_anchor_plus_n_months(server_url: str):
    """[D-4]"""
    connection = await asyncpg.connect(server_url)
    try:
        found = await connection.fetch(
            """
            SELECT d AS charge_day, m AS months, array_agg(
                (make_date(2024, 2, d) + n * m * interval '1 month')::date ORDER BY n
            ) AS due_dates
            FROM generate_series(1, 28) AS d, unnest($1::int[]) AS m, generate_series(0, 12 * $2::int / m) AS n
            GROUP BY d, m
            """,
            PERIODS,
            YEARS,
        )
    finally:
        await connection.close()
    assert len(found) == 28 * len(PERIODS)
    for row in found:
        due = date(2024, 2, row["charge_day"])
        for expected in row["due_dates"]:
            assert due == expected
            due = next_period_start(due, charge_day=row["charge_day"], period_months=row["months"])
