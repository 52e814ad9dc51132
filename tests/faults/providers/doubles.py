"""The simulated providers of the run `providers`: what they hold, and what their payers do."""

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from fatura.domain.calendar import local_date
from fatura.gateways.adapters.pix.charges import reference_of
from fatura.gateways.port import Webhook
from tests.contract.mercado_pago_provider import signed
from tests.doubles.asaas import server as asaas
from tests.doubles.mercado_pago import server as mercado_pago
from tests.doubles.pix import server as pix
from tests.doubles.server import Double, Loss
from tests.doubles.stripe import server as stripe
from tests.faults.clock import FastClock
from tests.faults.providers.adapters import Places
from tests.support import asaas_shop, bank_shop, mercado_pago_shop, stripe_shop
from tests.support.provider_shop import Losses

MOST_PAUSE_SECONDS = 0.1
"""A lossy provider waits at most this long before it does the work of a request, and again before it answers."""
_ID_LENGTH = 36


@dataclass(frozen=True, slots=True)
class Held:
    """A charge at a provider that is paid or can be paid now. `invoice_id` is a part of its reference."""

    charge_id: str
    invoice_id: str
    cents: int


class Simulated(ABC):
    """A simulated provider with one account.

    While `is_lossy` is true, it loses requests and answers, and pauses. Otherwise, it answers at once: a sweep makes
    dozens of calls, and would lose its lease if the run set its clock forward meanwhile. `second_charges` is true if
    the provider makes a second charge when a request is repeated. A provider without `webhook` sends none, so that the
    engine must poll.
    """

    name: ClassVar[str]
    least_cents: ClassVar[int] = 1
    second_charges: ClassVar[bool] = False
    connection: Any

    def __init__(self, double: Double, clock: FastClock, *, seed: int) -> None:
        self.double = double
        self.clock = clock
        self.is_lossy = False
        self.losses = Losses(seed, self.is_new_charge)
        self.paid: set[str] = set()
        double.fails = self._fails
        double.pause_seconds = self._pause_seconds

    def _fails(self, method: str, path: str) -> Loss | None:
        self.tick()
        return self.losses(method, path) if self.is_lossy else None

    def _pause_seconds(self) -> float:
        return self.losses.chance.uniform(0, MOST_PAUSE_SECONDS) if self.is_lossy else 0

    def tick(self) -> None:  # noqa: B027 - most providers read the run's clock
        """Set the provider's own clock, if it has one."""

    def pay(self, charge: Held) -> None:
        self.tick()
        self.paid.add(charge.charge_id)
        self._pay(charge.charge_id)

    def webhook(self, charge: Held) -> Webhook | None:
        """Return the webhook about a payment of this charge."""
        _ = charge
        return None

    @abstractmethod
    def is_new_charge(self, method: str, path: str) -> bool: ...
    @abstractmethod
    def made(self) -> int:
        """Return the number of all charges, including canceled ones and unfinished drafts."""

    @abstractmethod
    def held(self) -> Iterator[Held]: ...
    @abstractmethod
    def received(self) -> Counter[str]:
        """Return the received cents by the id of the invoice."""

    @abstractmethod
    def _pay(self, charge_id: str) -> None: ...


class SimulatedAsaas(Simulated):
    name = "asaas"
    least_cents = 500
    second_charges = True
    double: asaas.AsaasDouble

    def __init__(self, double: asaas.AsaasDouble, clock: FastClock, *, seed: int) -> None:
        super().__init__(double, clock, seed=seed)
        token = double.open_account()
        self.account = double.accounts[token]
        self.connection = asaas_shop.connection(token)

    def tick(self) -> None:
        self.account.today = local_date(self.clock())

    def is_new_charge(self, method: str, path: str) -> bool:
        return (method, path) == ("POST", "/payments")

    def made(self) -> int:
        return len(self.account.payments)

    def held(self) -> Iterator[Held]:
        for each in self.account.payments.values():
            if not each["deleted"]:
                yield Held(each["id"], each["externalReference"][:_ID_LENGTH], int(each["value"] * 100))

    def received(self) -> Counter[str]:
        sums = Counter[str]()
        for each in self.account.payments.values():
            if each["status"] == "RECEIVED":
                sums[each["externalReference"][:_ID_LENGTH]] += int(each["value"] * 100)
        return sums

    def webhook(self, charge: Held) -> Webhook:
        return asaas_shop.webhook(self.account.payment(charge.charge_id))

    def _pay(self, charge_id: str) -> None:
        self.account.pay(charge_id)


class SimulatedBank(Simulated):
    name = "pix"
    double: pix.PixDouble

    def __init__(self, double: pix.PixDouble, clock: FastClock, *, seed: int) -> None:
        super().__init__(double, clock, seed=seed)
        self.account = double.open_account()
        self.connection = bank_shop.connection(double, self.account)

    def is_new_charge(self, method: str, path: str) -> bool:
        return method == "PUT" and path.startswith("/cobv/")

    def made(self) -> int:
        return len(self.account.charges)

    def held(self) -> Iterator[Held]:
        for txid, each in self.account.charges.items():
            if each["status"] in {"ATIVA", "CONCLUIDA"}:
                yield Held(txid, _invoice_of(txid), _cents(each["valor"]["original"]))

    def received(self) -> Counter[str]:
        sums = Counter[str]()
        for txid, charge in self.account.charges.items():
            sums[_invoice_of(txid)] += sum(_cents(each["valor"]) for each in charge.get("pix", ()))
        return +sums

    def _pay(self, charge_id: str) -> None:
        self.account.pay(charge_id)


class SimulatedStripe(Simulated):
    name = "stripe"
    least_cents = 50
    double: stripe.StripeDouble

    def __init__(self, double: stripe.StripeDouble, clock: FastClock, *, seed: int) -> None:
        super().__init__(double, clock, seed=seed)
        key = double.open_account()
        self.account = double.accounts[key]
        self.connection = stripe_shop.connection(key)

    def tick(self) -> None:
        self.double.now = self.clock()

    def is_new_charge(self, method: str, path: str) -> bool:
        return method == "POST" and path.endswith("/finalize")

    def made(self) -> int:
        return len(self.account.invoices)

    def held(self) -> Iterator[Held]:
        for each in self.account.invoices.values():
            if each["status"] in {"open", "paid"}:
                yield Held(each["id"], _invoice_of_stripe(each), each["total"])

    def received(self) -> Counter[str]:
        sums = Counter[str]()
        for each in self.account.of("invoice_payment").values():
            if each["status"] == "paid":
                sums[_invoice_of_stripe(self.account.invoices[each["invoice"]])] += each["amount_paid"]
        return sums

    def webhook(self, charge: Held) -> Webhook:
        invoice = self.account.invoices[charge.charge_id]
        return stripe_shop.webhook(invoice, at=int(self.clock().timestamp()))

    def _pay(self, charge_id: str) -> None:
        self.account.pay(charge_id)


class SimulatedMercadoPago(Simulated):
    """The charges are links (preferences), which the engine can only end. `held` has the links that have not ended."""

    name = "mercado_pago"
    second_charges = True
    double: mercado_pago.MercadoPagoDouble

    def __init__(self, double: mercado_pago.MercadoPagoDouble, clock: FastClock, *, seed: int) -> None:
        super().__init__(double, clock, seed=seed)
        token = double.open_account()
        self.account = double.accounts[token]
        self.connection = mercado_pago_shop.connection(token)

    def is_new_charge(self, method: str, path: str) -> bool:
        return (method, path) == ("POST", "/checkout/preferences")

    def made(self) -> int:
        return len(self.account.preferences)

    def held(self) -> Iterator[Held]:
        for link_id, each in self.account.preferences.items():
            if link_id in self.paid or self.account.is_payable(each):
                cents = sum(int(item["unit_price"] * 100) * item["quantity"] for item in each["items"])
                yield Held(link_id, each["external_reference"][:_ID_LENGTH], cents)

    def received(self) -> Counter[str]:
        sums = Counter[str]()
        for each in self.account.payments.values():
            if each["status"] == "approved":
                sums[each["external_reference"][:_ID_LENGTH]] += int(each["transaction_amount"] * 100)
        return sums

    def webhook(self, charge: Held) -> Webhook:
        """Return a webhook that names no charge, so the engine polls all unpaid charges (D-190)."""
        _ = charge
        return signed(7, secret=mercado_pago_shop.SECRET, at=self.clock().timestamp())

    def _pay(self, charge_id: str) -> None:
        self.account.attempt(charge_id)


def _cents(amount: str) -> int:
    return int(amount.replace(".", ""))


def _invoice_of(txid: str) -> str:
    reference = reference_of(txid)
    return "" if reference is None else str(reference[0])


def _invoice_of_stripe(invoice: Any) -> str:
    return invoice["metadata"]["fatura_reference"][:_ID_LENGTH]


@asynccontextmanager
async def open_all(clock: FastClock, *, seed: int) -> AsyncGenerator[Sequence[Simulated]]:
    """Run the servers of all four providers in this process."""
    seeds = random.Random(seed)  # noqa: S311 - repeatable on purpose

    def own() -> int:
        return seeds.randrange(1 << 32)

    async with AsyncExitStack() as stack:
        start = stack.enter_async_context
        yield [
            SimulatedAsaas(await start(asaas.open_double(local_date(clock()))), clock, seed=own()),
            SimulatedBank(await start(pix.open_double(clock)), clock, seed=own()),
            SimulatedStripe(await start(stripe.open_double(clock())), clock, seed=own()),
            SimulatedMercadoPago(await start(mercado_pago.open_double(clock)), clock, seed=own()),
        ]


def places(simulated: Sequence[Simulated]) -> Places:
    urls = {each.name: each.double.url for each in simulated}
    [bank] = [each.double for each in simulated if isinstance(each, SimulatedBank)]
    return Places(urls, bank.authority.cert_pem.bytes().decode())
