"""Customers whose data is unique text (canaries). `Story` brings this text to every place that may keep a copy."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest

from fatura.gateways import port
from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, ChargeRequest, Payer, RefundRequest
from tests.support.price_server import PriceServer, Reply
from tests.support.receiver import Received, Receiver
from tests.support.receiver import Reply as Response
from tests.support.sandbox_steps import connection_id, read
from tests.support.world import Answer, Json, World, item, plan_body


@dataclass(slots=True)
class EchoingGateway:
    """The sandbox gateway, but its errors and pay links repeat the data of the payer.

    `refusals` has a list of errors for a customer's id. Each request for a charge of this customer removes the first
    error and raises it.
    """

    refusals: dict[UUID, list[Callable[[str], Exception]]] = field(default_factory=dict[UUID, Any])
    payers: dict[UUID, Payer] = field(default_factory=dict[UUID, Payer])
    refuses_refunds: bool = False

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        create, get = SandboxGateway.create_charge, SandboxGateway.get_charge
        cancel, refund = SandboxGateway.cancel_charge, SandboxGateway.refund_charge

        async def create_charge(gateway: SandboxGateway, request: ChargeRequest) -> Charge:
            self.payers[request.invoice_id] = request.payer
            if errors := self.refusals.get(request.payer.customer_id):
                raise errors.pop(0)(_echo(request.payer))
            return self._named(await create(gateway, request))

        async def get_charge(gateway: SandboxGateway, charge_id: str) -> Charge:
            return self._named(await get(gateway, charge_id))

        async def cancel_charge(gateway: SandboxGateway, charge_id: str) -> Charge:
            return self._named(await cancel(gateway, charge_id))

        async def refund_charge(gateway: SandboxGateway, request: RefundRequest) -> Charge:
            charge = await get(gateway, request.charge_id)
            if self.refuses_refunds:
                detail = f"no refund of {request.reason} for {_echo(self.payers[charge.invoice_id])}"
                raise port.PermanentError("rejected", detail)
            return self._named(await refund(gateway, request))

        for each in (create_charge, get_charge, cancel_charge, refund_charge):
            monkeypatch.setattr(SandboxGateway, each.__name__, each)

    def _named(self, charge: Charge) -> Charge:
        text = _echo(self.payers[charge.invoice_id])
        pay = port.PayData(
            url=f"https://pay.example/{text}", pix_code=f"pix {text}", boleto_line=f"boleto {text}"
        )
        return replace(charge, pay=pay)


def _echo(payer: Payer) -> str:
    return f"{payer.name} <{payer.email}> {payer.document}"


def echo_events(receiver: Receiver) -> None:
    """Make the receiver answer 500. The body of the answer repeats the data of the event's customer."""

    def answer(received: Received) -> Response:
        named = json.dumps(next(iter(received.json["data"].values())).get("customer", {}))
        return Response(500, named.encode())

    receiver.answer = answer


def cpf(chance: random.Random) -> str:
    """Return a random CPF with valid check digits."""
    digits = [chance.randrange(10) for _ in range(9)]
    for length in (10, 11):
        total = sum(digit * weight for digit, weight in zip(digits, range(length, 1, -1), strict=False))
        digits.append(total * 10 % 11 % 10)
    return "".join(map(str, digits))


@dataclass(slots=True)
class CanaryCustomer:
    """A customer of the world's account. `stored` are the canaries that are stored somewhere before the erasure."""

    world: World
    name: str
    chance: random.Random
    stored: list[str] = field(default_factory=list[str])
    keys: list[str] = field(default_factory=list[str])
    sent: list[tuple[str, Json, str, Answer]] = field(default_factory=list[tuple[str, Json, str, Answer]])
    id: str = ""
    external_ref: str = ""

    def canary(self, kind: str) -> str:
        letters = "".join(self.chance.choices("abcdefghijkmnpqrstuvwxyz23456789", k=12))
        self.stored.append(f"{self.name}-{kind}-{letters}")
        return self.stored[-1]

    def document(self) -> str:
        self.stored.append(cpf(self.chance))
        return self.stored[-1]

    async def post(self, path: str, body: Json = None) -> Json:
        """Send a POST with a canary in its Idempotency-Key. It must succeed."""
        key = self.canary("key")
        self.keys.append(self.stored.pop())
        answer = await self.world.post(path, body, key=key)
        assert answer.status in {200, 201, 202}, answer.body
        self.sent.append((path, body, key, answer))
        return answer.json

    async def change(self) -> None:
        """Replace name, e-mail and document. The old values stay in earlier events, answers and requests."""
        body = {
            "name": self.canary("name"),
            "email": f"{self.canary('mail')}@example.com",
            "document": self.document(),
        }
        answer = await self.world.patch(f"/v1/customers/{self.id}", body)
        assert answer.status == 200, answer.body

    async def enroll(self, plan: Json) -> Json:
        """Subscribe the customer to a plan. The first call also creates the customer."""
        if not self.id:
            self.external_ref = self.canary("ref")
        customer = {
            "externalRef": self.external_ref,
            "name": "ignored" if self.id else self.canary("name"),
            "email": "ignored@example.com" if self.id else f"{self.canary('mail')}@example.com",
            "document": cpf(self.chance) if self.id else self.document(),
        }
        body = {
            "planId": plan["id"],
            "customer": customer,
            "externalRef": self.canary("subscription"),
            "gatewayConnectionId": await connection_id(self.world),
        }
        subscription = await self.post("/v1/subscriptions", body)
        self.id = subscription["customer"]["id"]
        return subscription


@dataclass(slots=True)
class Story:
    """A merchant's requests about one customer. They leave no active subscription and no open invoice."""

    of: CanaryCustomer
    gateway: EchoingGateway
    prices: PriceServer

    async def run(self, fixed: Json, variable: Json) -> None:
        of = self.of
        await self._refused_then_reissued(fixed)
        await of.change()
        await self._priced_late(variable)
        await of.change()
        await self._valued_by_hand(variable)
        await of.change()
        await self._delayed(fixed)
        await of.change()
        await self._customized_and_moved(fixed)
        for subscription in await of.world.all(f"/v1/subscriptions?customerId={of.id}"):
            await of.post(f"/v1/subscriptions/{subscription['id']}/cancel")
        await of.world.run()
        await self._redelivered()

    async def _redelivered(self) -> None:
        """Redeliver an event. The API answers with the earlier attempts, including the receiver's answers."""
        of, world = self.of, self.of.world
        created = await world.events("subscription.created")
        [event] = [each for each in created if each["data"]["subscription"]["customer"]["id"] == of.id][:1]
        shown = await of.post(f"/v1/events/{event['id']}/redeliver")
        assert of.external_ref in json.dumps(shown)

    async def _first_invoice(self, subscription: Json) -> Json:
        [invoice] = await self.of.world.invoices(subscription)
        return await read(self.of.world, invoice)

    async def _refused_then_reissued(self, plan: Json) -> None:
        """The gateway refuses the first charge. The second one is paid, refunded in part, and disputed."""
        of, world = self.of, self.of.world
        subscription = await of.enroll(plan)
        text = of.canary("refusal")
        self.gateway.refusals[UUID(of.id)] = [lambda echo: port.PermanentError("rejected", f"{text} {echo}")]
        await world.run()
        invoice = await self._first_invoice(subscription)
        assert text in invoice["issueError"]["detail"]
        await of.post(f"/v1/invoices/{invoice['id']}/reissue", {})
        await world.run()
        invoice = await self._first_invoice(subscription)
        assert of.external_ref in json.dumps(invoice)
        await world.made(f"/v1/sandbox/charges/{invoice['gatewayInvoiceId']}/pay")
        await world.run()
        reasons = f"/v1/invoices/{invoice['id']}/refunds"
        await of.post(reasons, {"amountCents": 100, "reason": of.canary("reason")})
        self.gateway.refuses_refunds = True
        refused = await world.post(reasons, {"amountCents": 200, "reason": of.canary("reason")})
        self.gateway.refuses_refunds = False
        assert refused.status == 422, refused.body
        await world.made(f"/v1/sandbox/charges/{invoice['gatewayInvoiceId']}/dispute")
        await world.run()

    async def _priced_late(self, plan: Json) -> None:
        """The price endpoint first fails. The invoice is then paid by hand, and refunded in part."""
        of, world = self.of, self.of.world
        self.prices.answers(Reply({"error": of.canary("price"), "of": of.external_ref}, status=500))
        subscription = await of.enroll(plan)
        await world.run()
        invoice = await self._first_invoice(subscription)
        self.prices.answers({"amount": 1250, "description": of.canary("line"), "of": of.external_ref})
        await world.post(f"/v1/invoices/{invoice['id']}/retry-pricing")
        await world.run()
        payment = {"method": "cash", "note": of.canary("note"), "reference": of.canary("reference")}
        await of.post(f"/v1/invoices/{invoice['id']}/payments", payment)
        await of.post(
            f"/v1/invoices/{invoice['id']}/refunds", {"amountCents": 50, "reason": of.canary("reason")}
        )

    async def _valued_by_hand(self, plan: Json) -> None:
        """A person enters the price. The invoice is canceled after it was issued."""
        of, world = self.of, self.of.world
        self.prices.answers(Reply({"error": of.canary("price")}, status=503))
        subscription = await of.enroll(plan)
        await world.run()
        invoice = await self._first_invoice(subscription)
        value = {"amount": 700, "description": of.canary("line")}
        await of.post(f"/v1/invoices/{invoice['id']}/items/{invoice['items'][0]['id']}/value", value)
        await world.run()
        await of.post(f"/v1/invoices/{invoice['id']}/cancel")

    async def _delayed(self, plan: Json) -> None:
        """The gateway is busy for up to a day, so the connection counts as failing. The invoice is then canceled."""
        of, world = self.of, self.of.world
        text = of.canary("busy")
        self.gateway.refusals[UUID(of.id)] = [lambda echo: port.TransientError(f"{text} {echo}")] * 40
        subscription = await of.enroll(plan)
        await world.advance(days=1)
        self.gateway.refusals[UUID(of.id)] = []
        await world.advance(days=1)
        invoice = await self._first_invoice(subscription)
        await of.post(f"/v1/invoices/{invoice['id']}/cancel")

    async def _customized_and_moved(self, plan: Json) -> None:
        of, world = self.of, self.of.world
        subscription = await of.enroll(plan)
        terms = {
            key: value for key, value in plan_body(item(await world.product(500))).items() if key != "name"
        }
        await of.post(f"/v1/subscriptions/{subscription['id']}/customize", terms)
        moved_from, other = await connection_id(world), await world.connect()
        path = f"/v1/integration/gateways/{moved_from}/move"
        await of.post(path, {"toConnectionId": other["connectionId"]})
        await world.run()
        await of.post(
            f"/v1/integration/gateways/{other['connectionId']}/move", {"toConnectionId": moved_from}
        )
        await world.run()
        invoice = await self._first_invoice(subscription)
        await of.post(f"/v1/invoices/{invoice['id']}/cancel")
