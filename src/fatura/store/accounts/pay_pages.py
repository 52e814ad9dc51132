"""SQL of the columns of `account` that pay pages show (D-258)."""

from dataclasses import dataclass

from fatura.domain.account import Account
from fatura.domain.pay_page import PayPageLook
from fatura.store.db import Tx, record


@dataclass(frozen=True, slots=True)
class PayPageOwner:
    """The account to which a pay page belongs."""

    account: Account
    look: PayPageLook
    is_suspended: bool
    is_recovering: bool


async def find_owner(tx: Tx) -> PayPageOwner | None:
    row = await tx.fetchrow(
        """
        SELECT a.account_id, a.mode, a.currency, a.clock_offset, coalesce(a.pay_page_name, a.name) AS name,
            a.pay_page_color AS color, a.pay_page_logo AS logo, a.suspended_at IS NOT NULL AS is_suspended,
            a.recovering_since IS NOT NULL AS is_recovering
        FROM account a WHERE a.account_id = $1
        """
    )
    if row is None:
        return None
    return record(PayPageOwner, row, account=record(Account, row), look=record(PayPageLook, row))


async def read(tx: Tx) -> PayPageLook:
    found = await tx.fetchrow_as(
        PayPageLook,
        """
        SELECT coalesce(a.pay_page_name, a.name) AS name, a.pay_page_color AS color, a.pay_page_logo AS logo
        FROM account a WHERE a.account_id = $1
        """,
    )
    assert found is not None, "the transaction belongs to an account"
    return found


async def lock(tx: Tx) -> None:
    """Lock the account, so that concurrent changes of the pay pages run one after the other."""
    await tx.execute("SELECT FROM account a WHERE a.account_id = $1 FOR NO KEY UPDATE")


async def update(tx: Tx, *, name: str | None, color: str | None, logo: bytes | None) -> None:
    """Store the name, color and logo of pay pages. Without a name, pay pages show the account's name."""
    await tx.execute(
        """
        UPDATE account a SET pay_page_name = $2, pay_page_color = $3, pay_page_logo = $4 WHERE a.account_id = $1
        """,
        name,
        color,
        logo,
    )
