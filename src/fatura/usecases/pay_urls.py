"""The URLs of pay pages (D-258)."""

from fatura.domain.credentials import Mode
from fatura.domain.invoice import Invoice
from fatura.domain.pay_links import PayLink
from fatura.usecases.transaction import Work


def pay_url(work: Work, invoice: Invoice) -> str | None:
    """Return the URL of an invoice's pay page, or None if the engine does not know its own address.

    Without FATURA_PUBLIC_URL, a sandbox account gets the address on which this process listens.
    """
    base = work.deps.settings.public_url
    if base is None and work.account.mode is Mode.SANDBOX:
        base = work.deps.listens_at
    if base is None:
        return None
    link = PayLink(work.account.account_id, invoice.invoice_id, invoice.pay_link_version)
    return f"{base}/pay/{work.deps.tagger.pay_links.token(link)}"
