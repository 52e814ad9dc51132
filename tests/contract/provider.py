"""A payment provider's double as the contract suite drives it, and a charge that none of them refuses."""

from datetime import UTC, date, datetime
from typing import Protocol
from uuid import uuid4

from fatura.domain.offer import PaymentMethod
from fatura.gateways.port import Charge, ChargeRequest, Gateway, Line, Payer, Webhook

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
DUE_DATE = date(2026, 3, 15)


class Provider(Protocol):
    """A provider as the suite drives it: its connections, its charges, and the network on the way to it."""

    async def connect(self) -> Gateway:
        """Return a new connection at `NOW`, in an account of its own, set up for all the provider can do."""
        ...

    async def pay(self, gateway: Gateway, charge: Charge) -> None:
        """Let the payer pay."""
        ...

    async def refuse(self, gateway: Gateway, charge: Charge) -> None:
        """Let the payment be refused."""
        ...

    async def cancel(self, gateway: Gateway, charge: Charge) -> None:
        """Cancel the charge in the provider's own dashboard."""
        ...

    async def refund(self, gateway: Gateway, charge: Charge) -> None:
        """Refund the charge in the provider's own dashboard."""
        ...

    async def lose_next_request(self, gateway: Gateway) -> None:
        """Let the next create time out before the provider sees it."""
        ...

    async def lose_next_answer(self, gateway: Gateway) -> None:
        """Let the next create time out after the provider did its work."""
        ...

    async def lose_next_cancel(self, gateway: Gateway) -> None:
        """Let the next cancelling of a charge time out after the provider did its work."""
        ...

    async def limit_next_request(self, gateway: Gateway) -> None:
        """Let the provider answer the next create that it is asked too often."""
        ...

    async def fail_next_read(self, gateway: Gateway) -> None:
        """Let the next read of a charge fail on the provider's side."""
        ...

    async def fail_next_list(self, gateway: Gateway) -> None:
        """Let the next page of a list of charges fail on the provider's side."""
        ...

    def webhook(self, gateway: Gateway, charge: Charge) -> Webhook:
        """Return what the provider sends when something happens to a charge, signed as of now."""
        ...

    async def catalog(self, gateway: Gateway) -> dict[str, str]:
        """Return the names in the provider's product catalog by the ids there."""
        ...


def charge_request(method: PaymentMethod = PaymentMethod.PIX) -> ChargeRequest:
    """Return a request for a charge of 99.90 that no gateway has a reason to refuse."""
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
