"""The interface of the test doubles in the contract suite, and a valid charge request."""

from datetime import UTC, date, datetime
from typing import Protocol
from uuid import uuid4

from fatura.domain.offer import PaymentMethod
from fatura.gateways.port import (
    Charge,
    ChargeRequest,
    Gateway,
    Line,
    Payer,
    RefundRequest,
    Webhook,
)

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
DUE_DATE = date(2026, 3, 15)


class Provider(Protocol):
    """A test double of a payment provider. Tests use it to open connections, change charges and cause faults.

    `signs_webhook_bodies`: a webhook with a changed body is refused. `lists_canceled`: `charges_since` also returns
    canceled charges. `shows_refusals`: a charge whose card was refused has the state REFUSED. `shows_lost_refunds`: a
    charge shows a refund with the engine's id even if the answer to its request was lost.
    """

    @property
    def signs_webhook_bodies(self) -> bool: ...

    @property
    def lists_canceled(self) -> bool: ...

    @property
    def shows_refusals(self) -> bool: ...

    @property
    def shows_lost_refunds(self) -> bool: ...

    async def connect(self) -> Gateway:
        """Return a connection in a new account whose clock shows `NOW`. All capabilities are enabled."""
        ...

    async def pay(self, gateway: Gateway, charge: Charge) -> None:
        """Pay the charge as the payer."""
        ...

    async def refuse(self, gateway: Gateway, charge: Charge) -> None: ...

    async def cancel(self, gateway: Gateway, charge: Charge) -> None:
        """Cancel the charge in the provider's own dashboard."""
        ...

    async def refund(self, gateway: Gateway, charge: Charge) -> None:
        """Refund the charge in the provider's own dashboard."""
        ...

    async def lose_next_request(self, gateway: Gateway) -> None:
        """Make the next request to create a charge time out before the provider receives it."""
        ...

    async def lose_next_answer(self, gateway: Gateway) -> None:
        """Make the next request to create a charge time out after the provider created the charge."""
        ...

    async def lose_next_cancel(self, gateway: Gateway) -> None:
        """Make the next request to cancel a charge time out after the provider canceled the charge."""
        ...

    async def lose_next_refund(self, gateway: Gateway) -> None:
        """Make the next refund time out after the provider refunded the charge."""
        ...

    async def limit_next_request(self, gateway: Gateway) -> None:
        """Make the provider refuse the next request to create a charge because of its rate limit."""
        ...

    async def fail_next_read(self, gateway: Gateway) -> None:
        """Make the next request to read a charge fail at the provider."""
        ...

    async def fail_next_list(self, gateway: Gateway) -> None:
        """Make the next request for a page of charges fail at the provider."""
        ...

    def webhook(self, gateway: Gateway, charge: Charge) -> Webhook | None:
        """Return the webhook that the provider sends for a charge, signed now. If it sends no webhooks, return None."""
        ...

    async def catalog(self, gateway: Gateway) -> dict[str, str]:
        """Return the names of the products in the provider's catalog, by the ids that the provider gave them."""
        ...


def charge_request(method: PaymentMethod = PaymentMethod.PIX) -> ChargeRequest:
    """Return a request for a charge of 99.90. Every gateway that supports `method` accepts it."""
    return ChargeRequest(
        invoice_id=uuid4(),
        attempt=1,
        amount_cents=9990,
        currency="BRL",
        method=method,
        installments=None,
        due_date=DUE_DATE,
        lines=(Line("Gold", 9990),),
        payer=Payer(uuid4(), "Ana Souza", "ana@example.com", "52998224725"),
    )


def refund_request(charge: Charge, amount_cents: int) -> RefundRequest:
    return RefundRequest(uuid4(), charge.charge_id, amount_cents, "BRL", "One session was canceled.")


async def charges_listed(gateway: Gateway, since: datetime) -> list[Charge]:
    """Return the charges of a gateway's list. Check that none is older than an instant that the list had before it."""
    listed, instants = list[Charge](), list[datetime]()
    async for each in gateway.charges_since(since):
        if isinstance(each, datetime):
            instants.append(each)
        else:
            assert each.created_at is None or all(each.created_at >= instant for instant in instants)
            listed.append(each)
    return listed
