"""SQL of `unmatched_charge`: charges at gateways that are not stored in `charge` (D-162).

A look reads one of these charges from the gateway and decides what to do with it. `next_look_at` is when the next look
is due. The table also has charges that are stored in `charge`, if they were reported because they should not be paid
any more (D-185). Polls read these charges, so no look at them is due.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from fatura.domain.charge import ChargeStage
from fatura.store.db import Tx


@dataclass(frozen=True, slots=True)
class UnmatchedCharge:
    """A claimed charge, which a look reads from the gateway.

    `state` is None until the engine has decided what the charge is. Afterwards, it is one of these:
    - the charge's state at the gateway: an event names the charge as a second charge;
    - PARKED: an event says that the charge has a wrong amount;
    - CANCELED without an event: the charge was found as a canceled second charge, or could not be read (D-181);
    - EXPIRED without an event: the charge has expired, and the invoice adopted another found charge (D-181).

    `found_at` is when the charge was found in this state. If this worker dies, another worker looks at the charge at
    `next_look_at`. `unknown_since` is when the gateway first answered that it does not know the charge, or None.
    """

    connection_id: UUID
    gateway_charge_id: str
    found_at: datetime
    state: ChargeStage | None
    next_look_at: datetime
    unknown_since: datetime | None


@dataclass(frozen=True, slots=True)
class PaidCharge:
    """A second charge with a new payment. `next_look_at` is None if no further look is needed after this payment."""

    connection_id: UUID
    gateway_charge_id: str
    state: ChargeStage
    paid_at: datetime
    next_look_at: datetime | None


async def add(
    tx: Tx,
    connection_id: UUID,
    gateway_charge_ids: Sequence[str],
    *,
    found_at: datetime,
    next_look_at: datetime,
    only_webhook: bool = False,
) -> None:
    """Store unmatched charges, or schedule another look at stored ones. A look that is due earlier stays."""
    ids = sorted(set(gateway_charge_ids))
    await tx.execute(
        """
        INSERT INTO unmatched_charge
            (account_id, connection_id, gateway_charge_id, found_at, next_look_at, only_webhook)
        SELECT o.account_id, $2, n.gateway_charge_id, $4, $5, $6
        FROM account o CROSS JOIN unnest($3::text[]) AS n (gateway_charge_id)
        WHERE o.account_id = $1
        ON CONFLICT (account_id, connection_id, gateway_charge_id) DO NOTHING
        """,
        connection_id,
        ids,
        found_at,
        next_look_at,
        only_webhook,
    )
    await tx.execute(
        """
        UPDATE unmatched_charge u SET next_look_at = least(u.next_look_at, $4), only_webhook = u.only_webhook AND $5
        WHERE u.account_id = $1 AND u.connection_id = $2 AND u.gateway_charge_id = ANY($3::text[])
            AND (u.next_look_at IS NULL OR u.next_look_at > $4 OR u.only_webhook > $5)
        """,
        connection_id,
        ids,
        next_look_at,
        only_webhook,
    )


async def add_paid(tx: Tx, charges: Sequence[PaidCharge], *, found_at: datetime) -> None:
    """Store second charges with new payments. If a charge is stored already, add the payment.

    A look that is due earlier stays.
    """
    columns = (
        [each.connection_id for each in charges],
        [each.gateway_charge_id for each in charges],
        [each.state for each in charges],
        [each.paid_at for each in charges],
        [each.next_look_at for each in charges],
    )
    await tx.execute(
        """
        INSERT INTO unmatched_charge (account_id, connection_id, gateway_charge_id, found_at, state, paid_at,
            next_look_at)
        SELECT o.account_id, n.connection_id, n.gateway_charge_id, $2, n.state, n.paid_at, n.next_look_at
        FROM account o CROSS JOIN unnest($3::uuid[], $4::text[], $5::text[], $6::timestamptz[], $7::timestamptz[])
            AS n (connection_id, gateway_charge_id, state, paid_at, next_look_at)
        WHERE o.account_id = $1
        ORDER BY n.connection_id, n.gateway_charge_id
        ON CONFLICT (account_id, connection_id, gateway_charge_id) DO NOTHING
        """,
        found_at,
        *columns,
    )
    await tx.execute(
        """
        UPDATE unmatched_charge u SET state = coalesce(u.state, n.state), paid_at = greatest(u.paid_at, n.paid_at),
            next_look_at = least(u.next_look_at, n.next_look_at)
        FROM unnest($2::uuid[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[])
            AS n (connection_id, gateway_charge_id, state, paid_at, next_look_at)
        WHERE u.account_id = $1 AND u.connection_id = n.connection_id AND u.gateway_charge_id = n.gateway_charge_id
        """,
        *columns,
    )


async def without_charge(tx: Tx, connection_id: UUID, gateway_ids: Sequence[str]) -> Sequence[str]:
    """Return the given gateway ids that no stored charge of the connection has, in the given order."""
    rows = await tx.fetch(
        """
        SELECT c.gateway_invoice_id FROM charge c
        WHERE c.account_id = $1 AND c.connection_id = $2 AND c.gateway_invoice_id = ANY($3::text[])
        """,
        connection_id,
        gateway_ids,
    )
    known = {row["gateway_invoice_id"] for row in rows}
    return [each for each in gateway_ids if each not in known]


async def find(
    tx: Tx, connection_id: UUID, gateway_ids: Sequence[str]
) -> dict[str, tuple[ChargeStage | None, datetime]]:
    """Return the state of each of these charges that this table has, and when this state was found.

    The keys are the gateway's ids. The state is None if the engine has not decided yet.
    """
    rows = await tx.fetch(
        """
        SELECT u.gateway_charge_id, u.state, u.found_at FROM unmatched_charge u
        WHERE u.account_id = $1 AND u.connection_id = $2 AND u.gateway_charge_id = ANY($3::text[])
        """,
        connection_id,
        gateway_ids,
    )
    return {
        row["gateway_charge_id"]: (row["state"] and ChargeStage(row["state"]), row["found_at"])
        for row in rows
    }


async def reported(tx: Tx, connection_id: UUID, gateway_ids: Sequence[str]) -> set[str]:
    """Return those of the given gateway ids of a connection for which a state is stored."""
    found = await find(tx, connection_id, gateway_ids)
    return {charge_id for charge_id, (state, _) in found.items() if state is not None}


async def due_looks(tx: Tx, limits: Mapping[UUID, int], *, now: datetime) -> Sequence[tuple[UUID, str]]:
    """Return charges whose look is due, by connection and the gateway's id, earliest due first.

    `limits` has the maximum number of charges of each connection.
    """
    rows = await tx.fetch(
        """
        SELECT c.connection_id, n.gateway_charge_id
        FROM unnest($2::uuid[], $3::int[]) AS c (connection_id, most)
        CROSS JOIN LATERAL (
            SELECT u.gateway_charge_id, u.next_look_at FROM unmatched_charge u
            WHERE u.account_id = $1 AND u.connection_id = c.connection_id AND u.next_look_at <= $4
            ORDER BY u.next_look_at LIMIT c.most
        ) n
        ORDER BY n.next_look_at
        """,
        list(limits),
        list(limits.values()),
        now,
    )
    return [(row["connection_id"], row["gateway_charge_id"]) for row in rows]


async def claim(
    tx: Tx, charges: Sequence[tuple[UUID, str]], *, now: datetime, retry_at: datetime
) -> Sequence[UnmatchedCharge]:
    """Return the given charges whose look is still due.

    Set the next look at each of them to `retry_at`, in case this worker dies.
    """
    return await tx.fetch_as(
        UnmatchedCharge,
        """
        WITH due AS MATERIALIZED (
            SELECT x.connection_id, x.gateway_charge_id
            FROM unnest($2::uuid[], $3::text[]) AS n (connection_id, gateway_charge_id)
            JOIN unmatched_charge x ON x.connection_id = n.connection_id AND x.gateway_charge_id = n.gateway_charge_id
            WHERE x.account_id = $1 AND x.next_look_at <= $4
            FOR NO KEY UPDATE OF x SKIP LOCKED
        )
        UPDATE unmatched_charge u SET next_look_at = $5 FROM due
        WHERE u.account_id = $1 AND u.connection_id = due.connection_id
            AND u.gateway_charge_id = due.gateway_charge_id
        RETURNING u.connection_id, u.gateway_charge_id, u.found_at, u.state, u.next_look_at, u.unknown_since
        """,
        [connection_id for connection_id, _ in charges],
        [gateway_charge_id for _, gateway_charge_id in charges],
        now,
        retry_at,
    )


async def lock(tx: Tx, charge: UnmatchedCharge) -> UnmatchedCharge | None:
    """Lock a claimed charge, and return it as it is stored now. None if another transaction has removed it."""
    row = await tx.fetchrow(
        """
        SELECT u.found_at, u.state, u.unknown_since FROM unmatched_charge u
        WHERE u.account_id = $1 AND u.connection_id = $2 AND u.gateway_charge_id = $3 FOR NO KEY UPDATE
        """,
        charge.connection_id,
        charge.gateway_charge_id,
    )
    if row is None:
        return None
    state = None if row["state"] is None else ChargeStage(row["state"])
    return replace(charge, found_at=row["found_at"], state=state, unknown_since=row["unknown_since"])


async def make_due(tx: Tx, charges: Sequence[UnmatchedCharge], *, now: datetime) -> None:
    """End the claims of these charges: make the looks at them due now."""
    await tx.execute(
        """
        UPDATE unmatched_charge u SET next_look_at = $4
        FROM unnest($2::uuid[], $3::text[]) AS n (connection_id, gateway_charge_id)
        WHERE u.account_id = $1 AND u.connection_id = n.connection_id AND u.gateway_charge_id = n.gateway_charge_id
        """,
        [each.connection_id for each in charges],
        [each.gateway_charge_id for each in charges],
        now,
    )


async def note_unanswered(tx: Tx, charge: UnmatchedCharge) -> None:
    """Add 1 to the number of looks at a claimed charge that the gateway did not answer."""
    await tx.execute(
        """
        UPDATE unmatched_charge u SET unanswered_looks = u.unanswered_looks + 1
        WHERE u.account_id = $1 AND u.connection_id = $2 AND u.gateway_charge_id = $3
        """,
        charge.connection_id,
        charge.gateway_charge_id,
    )


async def note_unknown(tx: Tx, charge: UnmatchedCharge, *, since: datetime, next_look_at: datetime) -> None:
    """Store `since`, the time of the gateway's first answer that it does not know a claimed charge, and the next look.

    If another transaction has moved the look to before the time that `claim` set, keep that look.
    """
    await tx.execute(
        """
        UPDATE unmatched_charge u SET unknown_since = $4,
            next_look_at = CASE WHEN u.next_look_at < $6 THEN u.next_look_at ELSE $5 END
        WHERE u.account_id = $1 AND u.connection_id = $2 AND u.gateway_charge_id = $3
        """,
        charge.connection_id,
        charge.gateway_charge_id,
        since,
        next_look_at,
        charge.next_look_at,
    )


async def end_unknown(tx: Tx, charges: Sequence[tuple[UUID, str]]) -> None:
    """Clear `unknown_since` of these charges, because the gateway knows the charges now (D-162).

    Each charge is given by its connection and the gateway's id.
    """
    await tx.execute(
        """
        UPDATE unmatched_charge u SET unknown_since = NULL
        FROM unnest($2::uuid[], $3::text[]) AS n (connection_id, gateway_charge_id)
        WHERE u.account_id = $1 AND u.connection_id = n.connection_id AND u.gateway_charge_id = n.gateway_charge_id
            AND u.unknown_since IS NOT NULL
        """,
        [connection_id for connection_id, _ in charges],
        [gateway_charge_id for _, gateway_charge_id in charges],
    )


async def paid_at(tx: Tx, charge: UnmatchedCharge) -> datetime | None:
    """Return `PaymentEntry.polled_from` of the charge's newest recorded payment, or None if it has no payment."""
    return await tx.fetchval(
        """
        SELECT u.paid_at FROM unmatched_charge u
        WHERE u.account_id = $1 AND u.connection_id = $2 AND u.gateway_charge_id = $3
        """,
        charge.connection_id,
        charge.gateway_charge_id,
    )


async def remove(tx: Tx, charges: Sequence[UnmatchedCharge]) -> None:
    await tx.execute(
        """
        DELETE FROM unmatched_charge u USING unnest($2::uuid[], $3::text[]) AS n (connection_id, gateway_charge_id)
        WHERE u.account_id = $1 AND u.connection_id = n.connection_id AND u.gateway_charge_id = n.gateway_charge_id
        """,
        [each.connection_id for each in charges],
        [each.gateway_charge_id for each in charges],
    )


async def save_state(
    tx: Tx, connection_id: UUID, gateway_charge_id: str, *, state: ChargeStage, found_at: datetime
) -> bool:
    """Store the state of a reported charge. Return False if the same state was already stored."""
    touched = await tx.execute(
        """
        INSERT INTO unmatched_charge AS u (account_id, connection_id, gateway_charge_id, found_at, state)
        VALUES ($1, $2, $3, $5, $4)
        ON CONFLICT (account_id, connection_id, gateway_charge_id) DO UPDATE
        SET state = EXCLUDED.state, found_at = EXCLUDED.found_at
        WHERE u.account_id = $1 AND u.state IS DISTINCT FROM EXCLUDED.state
        """,
        connection_id,
        gateway_charge_id,
        state,
        found_at,
    )
    return touched == 1


async def mark_canceled(
    tx: Tx, charges: Sequence[tuple[UUID, str]], *, states: Collection[ChargeStage], found_at: datetime
) -> None:
    """Store that reported charges are canceled, if their stored state is one of `states`.

    Each charge is given by its connection and the gateway's id.
    """
    await tx.execute(
        """
        UPDATE unmatched_charge u SET state = 'canceled', found_at = $5
        FROM unnest($2::uuid[], $3::text[]) AS n (connection_id, gateway_charge_id)
        WHERE u.account_id = $1 AND u.connection_id = n.connection_id AND u.gateway_charge_id = n.gateway_charge_id
            AND u.state = ANY($4::text[])
        """,
        [connection_id for connection_id, _ in charges],
        [gateway_charge_id for _, gateway_charge_id in charges],
        sorted(states),
        found_at,
    )


async def keep(tx: Tx, charge: UnmatchedCharge, state: ChargeStage, *, next_look_at: datetime | None) -> None:
    """Store the state of a claimed charge, and when the next look at it is due. None means no further look.

    If another transaction has scheduled an earlier look since `claim`, that look stays.
    """
    await tx.execute(
        """
        UPDATE unmatched_charge u
        SET state = $4, unknown_since = NULL,
            next_look_at = CASE WHEN u.next_look_at < $6 THEN u.next_look_at ELSE $5 END
        WHERE u.account_id = $1 AND u.connection_id = $2 AND u.gateway_charge_id = $3
        """,
        charge.connection_id,
        charge.gateway_charge_id,
        state,
        next_look_at,
        charge.next_look_at,
    )


async def found_at(
    tx: Tx, charges: Sequence[tuple[UUID, str, ChargeStage]]
) -> dict[tuple[UUID, str], datetime]:
    """Return when each of these charges was found in its given state.

    The keys are pairs of connection id and gateway id. Charges that are not stored in the given state are left out.
    """
    rows = await tx.fetch(
        """
        SELECT u.connection_id, u.gateway_charge_id, u.found_at
        FROM unnest($2::uuid[], $3::text[], $4::text[]) AS n (connection_id, gateway_charge_id, state)
        JOIN unmatched_charge u ON u.account_id = $1 AND u.connection_id = n.connection_id
            AND u.gateway_charge_id = n.gateway_charge_id AND u.state = n.state
        """,
        [connection_id for connection_id, _, _ in charges],
        [gateway_charge_id for _, gateway_charge_id, _ in charges],
        [state for _, _, state in charges],
    )
    return {(row["connection_id"], row["gateway_charge_id"]): row["found_at"] for row in rows}
