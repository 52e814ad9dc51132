"""Read and change how the pay pages of an account look (D-258)."""

from fatura.store.accounts import pay_pages
from fatura.usecases.transaction import Work
from fatura.views.pay_page import PayPageView


async def read(work: Work) -> PayPageView:
    return PayPageView.of(await pay_pages.read(work.tx))


async def replace(work: Work, *, name: str | None, color: str | None, logo: bytes | None) -> PayPageView:
    """Store the look of all pay pages. Without a name, they show the account's name."""
    await pay_pages.lock(work.tx)
    before = PayPageView.of(await pay_pages.read(work.tx))
    await pay_pages.update(work.tx, name=name, color=color, logo=logo)
    after = PayPageView.of(await pay_pages.read(work.tx))
    work.audit(work.account.account_id, before=before, after=after)
    return after
