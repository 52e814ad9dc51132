"""The accounts of the simulated Stripe: customers, invoices, payments, and the rules by which Stripe refuses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import uuid4

from fatura.domain import tax_document

MIN_CENTS = 50
LIST = {"object": "list", "has_more": False, "url": "/v1/list"}

Json = dict[str, Any]


class RefusedError(Exception):
    """A request that Stripe answers with an error. Stripe saves no refusal under an idempotency key."""

    def __init__(self, code: str | None, message: str, *, status: int = 400, **more: str) -> None:
        super().__init__(code or message)
        self.status = status
        named = {"code": code} if code else {}
        self.body = {"error": {"type": "invalid_request_error", "message": message, **named, **more}}


@dataclass(slots=True)
class Account:
    """An account of the simulated Stripe. `clock` returns the current time."""

    clock: Callable[[], datetime]
    account_id: str = field(default_factory=lambda: f"acct_{uuid4().hex[:16]}")
    objects: dict[str, dict[str, Json]] = field(default_factory=dict[str, dict[str, Json]])
    tax_cents: int = 0
    """Tax that the account's settings add to each invoice."""
    tax_ids: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])
    processing: set[str] = field(default_factory=set[str])
    """Ids of the invoices whose payment Stripe is processing, for example a boleto that was paid today."""

    def of(self, kind: str) -> dict[str, Json]:
        return self.objects.setdefault(kind, {})

    @property
    def invoices(self) -> dict[str, Json]:
        return self.of("invoice")

    def found(self, kind: str, object_id: str) -> Json:
        found = self.of(kind).get(object_id)
        if found is None:
            raise RefusedError("resource_missing", f"No such {kind}: '{object_id}'", status=404, param="id")
        return found

    def new(self, kind: str, prefix: str, **data: Any) -> Json:
        """Store a new object, and return it."""
        made: Json = {
            "id": f"{prefix}_1{uuid4().hex[:23]}",
            "object": kind,
            "created": int(self.clock().timestamp()),
            "livemode": False,
            "metadata": {},
            **data,
        }
        self.of(kind)[made["id"]] = made
        return made

    def customer(self, customer_id: str) -> Json:
        found = self.of("customer").get(customer_id)
        if found is None or found.get("deleted"):
            raise RefusedError("resource_missing", f"No such customer: '{customer_id}'", param="customer")
        return found

    def create_customer(self, body: Json) -> Json:
        for each in body.get("tax_id_data", ()):
            if tax_document.refusal(each["value"]):
                raise RefusedError("tax_id_invalid", "Invalid value for a tax id.", param="tax_id_data[0]")
        ids = body.pop("tax_id_data", [])
        made = self.new("customer", "cus", balance=0, **body)
        self.tax_ids[made["id"]] = ids
        return made

    def create_invoice(self, body: Json) -> Json:
        customer = self.customer(body["customer"])
        due = int(body.get("due_date", 0))
        if due <= self.clock().timestamp():
            raise RefusedError(None, "`due_date` must be in the future.", param="due_date")
        made = self.new(
            "invoice",
            "in",
            account_country="BR",
            amount_due=0,
            amount_overpaid=0,
            amount_paid=0,
            amount_remaining=0,
            amount_shipping=0,
            attempt_count=0,
            attempted=False,
            auto_advance=body.get("auto_advance") == "true",
            automatic_tax={"enabled": False, "liability": None, "status": None},
            billing_reason="manual",
            collection_method=body["collection_method"],
            currency=body["currency"],
            customer=customer["id"],
            default_tax_rates=[],
            discounts=[],
            due_date=due,
            hosted_invoice_url=None,
            issuer={"type": "self"},
            lines={**LIST, "data": []},
            metadata=body.get("metadata", {}),
            number=None,
            payment_settings={**body["payment_settings"], "default_mandate": None},
            period_end=int(self.clock().timestamp()),
            period_start=int(self.clock().timestamp()),
            post_payment_credit_notes_amount=0,
            pre_payment_credit_notes_amount=0,
            starting_balance=customer["balance"],
            status="draft",
            status_transitions=dict.fromkeys(
                ("finalized_at", "marked_uncollectible_at", "paid_at", "voided_at")
            ),
            subtotal=0,
            total=0,
        )
        self._add_up(made)
        return made

    def add_line(self, body: Json) -> Json:
        """Add a line to a draft, and return the invoice item."""
        invoice = self._draft(body["invoice"])
        if invoice["customer"] != self.customer(body["customer"])["id"]:
            raise RefusedError(None, "The invoice belongs to another customer.", param="invoice")
        if invoice["currency"] != body["currency"]:
            raise RefusedError(None, "The currency differs from that of the invoice.", param="currency")
        amount, now = int(body["amount"]), int(self.clock().timestamp())
        common: Json = {
            "amount": amount,
            "currency": body["currency"],
            "description": body.get("description"),
            "discountable": body.get("discountable") != "false",
            "discounts": [],
            "metadata": body.get("metadata", {}),
            "period": {"start": now, "end": now},
        }
        item = self.new(
            "invoiceitem", "ii", customer=invoice["customer"], invoice=invoice["id"], date=now, **common
        )
        item |= {"proration": False, "quantity": 1, "quantity_decimal": "1"}
        line = {"id": f"il_1{uuid4().hex[:23]}", "object": "line_item", "livemode": False, "subtotal": amount}
        invoice["lines"]["data"].append({**line, "invoice": invoice["id"], **common})
        self._add_up(invoice)
        return item

    def finalize(self, invoice_id: str) -> Json:
        invoice = self._draft(invoice_id)
        now = int(self.clock().timestamp())
        invoice["status_transitions"]["finalized_at"] = now
        if not invoice["lines"]["data"]:
            raise RefusedError("invoice_no_customer_line_items", "Nothing to invoice.")
        invoice |= {
            "status": "open",
            "hosted_invoice_url": f"https://invoice.stripe.example/i/{invoice_id}",
            "number": f"F-{len(self.invoices):04}",
            "effective_at": now,
        }
        self._apply_balance(invoice)
        self.charge(invoice, invoice["amount_due"])
        if not invoice["amount_due"]:
            self._settle(invoice)
        return invoice

    def charge(self, invoice: Json, cents: int) -> Json:
        """Add an open payment with its payment intent to an invoice, and return the payment."""
        intent = f"pi_{uuid4().hex[:24]}"
        return self.new(
            "invoice_payment",
            "inpay",
            amount_paid=None,
            amount_requested=cents,
            currency=invoice["currency"],
            invoice=invoice["id"],
            is_default=not self.payments(invoice["id"]),
            payment={"type": "payment_intent", "payment_intent": intent},
            status="open",
            status_transitions={"canceled_at": None, "paid_at": None},
        )

    def payments(self, invoice_id: str) -> Sequence[Json]:
        return [each for each in self.of("invoice_payment").values() if each["invoice"] == invoice_id]

    def pay(self, invoice_id: str, cents: int | None = None) -> None:
        """Pay an invoice as the payer, or a part of it."""
        invoice = self.found("invoice", invoice_id)
        assert invoice["status"] in {"open", "uncollectible"}, "only an unpaid invoice is paid"
        payment = next(each for each in self.payments(invoice_id) if each["status"] == "open")
        received: int = invoice["amount_remaining"] if cents is None else cents
        now = int(self.clock().timestamp())
        payment |= {"status": "paid", "amount_paid": received, "status_transitions": {"paid_at": now}}
        self._receive(invoice, received)
        if invoice["amount_remaining"]:
            self.charge(invoice, invoice["amount_remaining"])
        else:
            self._settle(invoice)

    def pay_outside(self, invoice_id: str) -> None:
        """Mark an invoice as paid outside Stripe, in the dashboard."""
        invoice = self.found("invoice", invoice_id)
        for each in self.payments(invoice_id):
            each["status"] = "canceled" if each["status"] == "open" else each["status"]
        rest = invoice["amount_remaining"]
        self._receive(invoice, rest)
        invoice["amount_paid_off_stripe"] = rest
        self._settle(invoice)

    def credit(self, invoice_id: str, cents: int) -> None:
        """Reduce an open invoice by a credit note, in the dashboard."""
        invoice = self.found("invoice", invoice_id)
        invoice["pre_payment_credit_notes_amount"] += cents
        invoice["amount_due"] -= cents
        invoice["amount_remaining"] -= cents
        if not invoice["amount_remaining"]:
            self._settle(invoice)

    def void(self, invoice_id: str) -> Json:
        invoice = self.found("invoice", invoice_id)
        if invoice["status"] not in {"open", "uncollectible"}:
            raise RefusedError("invoice_not_editable", "You can only void open or uncollectible invoices.")
        if invoice_id in self.processing:
            raise RefusedError(None, "You cannot void an invoice whose payment is processing.")
        invoice["status"] = "void"
        invoice["status_transitions"]["voided_at"] = int(self.clock().timestamp())
        return invoice

    def delete(self, invoice_id: str) -> Json:
        self._draft(invoice_id)
        del self.invoices[invoice_id]
        return {"id": invoice_id, "object": "invoice", "deleted": True}

    def refund(self, body: Json) -> Json:
        intent, amount = body["payment_intent"], int(body["amount"])
        paid = [
            each
            for each in self.of("invoice_payment").values()
            if each["payment"].get("payment_intent") == intent and each["status"] == "paid"
        ]
        if not paid:
            raise RefusedError(
                "resource_missing", f"No such payment_intent: '{intent}'", param="payment_intent"
            )
        invoice = self.found("invoice", paid[0]["invoice"])
        if invoice["payment_settings"]["payment_method_types"] == ["boleto"]:
            raise RefusedError(None, "Payments with boleto cannot be refunded.")
        done = [each for each in self.of("refund").values() if each["payment_intent"] == intent]
        if amount > paid[0]["amount_paid"] - sum(
            each["amount"] for each in done if each["status"] != "failed"
        ):
            raise RefusedError(None, "Refund amount is greater than unrefunded amount.", param="amount")
        return self.new(
            "refund",
            "re",
            amount=amount,
            charge=intent.replace("pi_", "ch_"),
            currency=invoice["currency"],
            payment_intent=intent,
            reason=None,
            status="succeeded",
            metadata=body.get("metadata", {}),
        )

    def dispute(self, invoice_id: str, status: str) -> Json:
        payment = self.payments(invoice_id)[0]
        intent = payment["payment"]["payment_intent"]
        return self.new(
            "dispute",
            "dp",
            amount=payment["amount_paid"],
            balance_transactions=[],
            charge=intent.replace("pi_", "ch_"),
            currency="brl",
            enhanced_eligibility_types=[],
            evidence={"enhanced_evidence": {}},
            evidence_details={
                "due_by": None,
                "enhanced_eligibility": {},
                "has_evidence": False,
                "past_due": False,
                "submission_count": 0,
                "submission_method": "not_submitted",
            },
            is_charge_refundable=False,
            payment_intent=intent,
            reason="general",
            status=status,
        )

    def create_product(self, body: Json) -> Json:
        product_id = body["id"]
        if product_id in self.of("product"):
            raise RefusedError("resource_already_exists", "Product already exists.", param="id")
        made = self.new(
            "product", "prod", active=True, images=[], marketing_features=[], type="service", **body
        )
        made["updated"] = made["created"]
        self.of("product")[product_id] = self.of("product").pop(next(reversed(self.of("product"))))
        return made

    def _draft(self, invoice_id: str) -> Json:
        invoice = self.found("invoice", invoice_id)
        if invoice["status"] != "draft":
            raise RefusedError("invoice_not_editable", "The invoice is no draft any more.")
        return invoice

    def _add_up(self, invoice: Json) -> None:
        subtotal = sum(each["amount"] for each in invoice["lines"]["data"])
        total = subtotal + self.tax_cents
        invoice |= {"subtotal": subtotal, "total": total, "amount_due": total, "amount_remaining": total}

    def _apply_balance(self, invoice: Json) -> None:
        """Apply the customer's balance at the finalization. Assume that a draft shows only the balance itself."""
        customer = self.of("customer")[invoice["customer"]]
        start = customer["balance"]
        due = max(invoice["total"] + start, 0)
        due = due if due >= MIN_CENTS else 0
        customer["balance"] = invoice["total"] + start - due
        invoice |= {"starting_balance": start, "ending_balance": customer["balance"]}
        invoice |= {"amount_due": due, "amount_remaining": due}

    def _receive(self, invoice: Json, cents: int) -> None:
        invoice["amount_paid"] += cents
        invoice["amount_remaining"] -= cents
        invoice["attempted"] = True

    def _settle(self, invoice: Json) -> None:
        invoice["status"] = "paid"
        invoice["status_transitions"]["paid_at"] = int(self.clock().timestamp())
