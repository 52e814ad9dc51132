"""The accounts of the simulated Mercado Pago: preferences, payments, refunds, and the rules for requests."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from itertools import count
from typing import Any
from uuid import uuid4

METHODS = {
    "credit_card": ("visa", 498),
    "bank_transfer": ("pix", 99),
    "ticket": ("bolbradesco", 349),
    "account_money": ("account_money", 499),
}
"""For each type of payment, a method, and the fee of a payment in hundredths of a percent."""
EXCLUDABLE = frozenset(
    {"credit_card", "debit_card", "prepaid_card", "bank_transfer", "ticket", "digital_currency", "atm"}
)
CANCELABLE = frozenset({"pending", "in_process", "authorized"})
MAX_KEY = 64
_OFFSET = timezone(timedelta(hours=-4))
"""Mercado Pago writes its own instants with this offset."""
_IDS = count(144_654_396_660)

Json = dict[str, Any]


class RefusedError(Exception):
    """A request that Mercado Pago answers with an error."""

    def __init__(self, code: int, description: str, *, status: int = 400, error: str = "bad_request") -> None:
        super().__init__(description)
        self.status = status
        cause = [{"code": code, "description": description, "data": None}]
        self.body = {"message": description, "error": error, "status": status, "cause": cause}


@dataclass(slots=True)
class Account:
    """An account of the simulated Mercado Pago, for which `now` is the time.

    The preferences in `unlisted` are not in the list yet. `keeps_metadata` says whether payments get the metadata of
    their preference. New refunds have the status `new_refunds`.
    """

    now: Callable[[], datetime]
    user_id: int = field(default_factory=lambda: next(_IDS))
    site_id: str = "MLB"
    preferences: dict[str, Json] = field(default_factory=dict[str, Json])
    payments: dict[int, Json] = field(default_factory=dict[int, Json])
    keys: dict[str, Json] = field(default_factory=dict[str, Json])
    unlisted: set[str] = field(default_factory=set[str])
    keeps_metadata: bool = True
    new_refunds: str = "approved"

    def create(self, body: Json) -> Json:
        """Create a preference, even if there is one with the same reference."""
        _check_preference(body)
        if body.get("expires") and datetime.fromisoformat(body["expiration_date_to"]) <= self.now():
            raise RefusedError(2100, "expiration_date_to must be a future date")
        key = f"{self.user_id}-{uuid4()}"
        created: Json = {
            "additional_info": "",
            "back_urls": {"failure": "", "pending": "", "success": ""},
            "binary_mode": False,
            "client_id": "6295877106812064",
            "collector_id": self.user_id,
            "date_created": self.stamp(),
            "id": key,
            "init_point": f"https://www.mercadopago.example/checkout/v1/redirect?pref_id={key}",
            "sandbox_init_point": f"https://sandbox.mercadopago.example/checkout/v1/redirect?pref_id={key}",
            "operation_type": "regular_payment",
            "site_id": self.site_id,
            "metadata": {},
            **copy.deepcopy(body),
        }
        self.preferences[key] = created
        return created

    def preference(self, preference_id: str) -> Json:
        if preference_id not in self.preferences:
            raise RefusedError(404, "preference_id not found", status=404, error="not_found")
        return self.preferences[preference_id]

    def change(self, preference_id: str, body: Json) -> Json:
        """Replace the fields that the request names. Nothing forbids that an end has passed already."""
        preference = self.preference(preference_id)
        _check_preference({"payer": preference.get("payer"), **body})
        preference |= copy.deepcopy(body)
        return preference

    def listed(self, reference: str) -> Sequence[Json]:
        """Return the preferences with a reference, newest first, as a list shows them."""
        shown = ("id", "external_reference", "date_created", "expires", "expiration_date_to", "collector_id")
        return [
            {**{name: each.get(name) for name in shown}, "items": [item["title"] for item in each["items"]]}
            for each in reversed(self.preferences.values())
            if each.get("external_reference") == reference and each["id"] not in self.unlisted
        ]

    def is_payable(self, preference: Json) -> bool:
        return (
            not preference["expires"] or datetime.fromisoformat(preference["expiration_date_to"]) > self.now()
        )

    def attempt(self, preference_id: str, status: str = "approved", **fields: Any) -> Json:
        """Make a payment of a preference as the payer, on Mercado Pago's page."""
        preference = self.preference(preference_id)
        assert self.is_payable(preference), "the page says that the link has expired"
        excluded = {each["id"] for each in preference["payment_methods"]["excluded_payment_types"]}
        kind = next(each for each in METHODS if each not in excluded)
        total = sum(Decimal(each["unit_price"]) * each["quantity"] for each in preference["items"])
        payment: Json = {
            "id": next(_IDS),
            "collector_id": self.user_id,
            "currency_id": "BRL",
            "date_approved": None,
            "date_created": self.stamp(),
            "date_last_updated": self.stamp(),
            "description": preference["items"][0]["title"],
            "external_reference": preference["external_reference"],
            "fee_details": [],
            "installments": 1,
            "live_mode": True,
            "metadata": copy.deepcopy(preference["metadata"]) if self.keeps_metadata else {},
            "operation_type": "regular_payment",
            "order": {"id": str(next(_IDS)), "type": "mercadopago"},
            "payer": {"id": "259325133", "email": "ana@example.com"},
            "payment_method_id": METHODS[kind][0],
            "payment_type_id": kind,
            "refunds": [],
            "status": "pending",
            "status_detail": "pending_waiting_payment",
            "transaction_amount": total,
            "transaction_amount_refunded": 0,
            **fields,
        }
        self.payments[payment["id"]] = payment
        if status != "pending":
            self.settle(payment["id"], status)
        return payment

    def settle(self, payment_id: int, status: str, detail: str = "accredited") -> Json:
        """Move a payment to a status, as Mercado Pago does by itself."""
        payment = self.payments[payment_id]
        payment |= {"status": status, "status_detail": detail, "date_last_updated": self.stamp()}
        if status == "approved":
            rate = METHODS[payment["payment_type_id"]][1]
            fee = (Decimal(payment["transaction_amount"]) * rate / 10_000).quantize(Decimal("0.01"))
            payment["date_approved"] = self.stamp()
            payment["fee_details"] = [
                {"type": "mercadopago_fee", "amount": fee, "fee_payer": "collector"},
                {"type": "financing_fee", "amount": Decimal("1.23"), "fee_payer": "payer"},
            ]
        return payment

    def payment(self, payment_id: str) -> Json:
        found = self.payments.get(int(payment_id)) if payment_id.isdigit() else None
        if found is None:
            raise RefusedError(2000, "Payment not found", status=404, error="not_found")
        return found

    def found(self, reference: str) -> Sequence[Json]:
        """Return the payments with a reference, newest first. Refunds in process are hidden here."""
        return [
            {**each, "refunds": [refund for refund in each["refunds"] if refund["status"] != "in_process"]}
            for each in reversed(self.payments.values())
            if each["external_reference"] == reference
        ]

    def cancel(self, payment_id: str, body: Json) -> Json:
        payment = self.payment(payment_id)
        if body != {"status": "cancelled"} or payment["status"] not in CANCELABLE:
            raise RefusedError(2063, "The action requested is not valid for the current payment state")
        return self.settle(payment["id"], "cancelled", "by_collector")

    def refund(self, payment_id: str, body: Json, key: str, *, shows_in_process: bool) -> Json:
        """Refund a payment. A repeated request with the same key gets the same refund, as it is now."""
        payment = self.payment(payment_id)
        if not 1 <= len(key) <= MAX_KEY:
            raise RefusedError(4292, "Header X-Idempotency-Key can't be null")
        if key in self.keys:
            return self.keys[key]
        amount = _amount(body.get("amount", payment["transaction_amount"]))
        taken = sum(
            (each["amount"] for each in payment["refunds"] if each["status"] != "rejected"), Decimal(0)
        )
        if payment["status"] != "approved":
            raise RefusedError(2063, "The action requested is not valid for the current payment state")
        if not 0 < amount <= Decimal(payment["transaction_amount"]) - taken:
            raise RefusedError(2018, "The amount to refund must be lower than the amount of the payment")
        refund: Json = {
            "id": next(_IDS),
            "payment_id": payment["id"],
            "amount": amount,
            "source": {"id": str(self.user_id), "name": "Academia Sol", "type": "collector"},
            "date_created": self.stamp(len(payment["refunds"])),
            "status": self.new_refunds,
            "unique_sequence_number": None,
        }
        payment["refunds"].append(refund)
        self.keys[key] = refund
        if self.new_refunds == "approved":
            self.settle_refund(payment, refund, "approved")
        elif not shows_in_process:
            raise RefusedError(2024, "The refund cannot be made now")
        return refund

    def settle_refund(self, payment: Json, refund: Json, status: str) -> None:
        refund["status"] = status
        done = sum(
            (each["amount"] for each in payment["refunds"] if each["status"] == "approved"), Decimal(0)
        )
        is_whole = done == Decimal(payment["transaction_amount"])
        payment |= {
            "transaction_amount_refunded": done,
            "status": "refunded" if is_whole else payment["status"],
            "status_detail": "refunded" if is_whole else "partially_refunded",
        }

    def stamp(self, seconds: int = 0) -> str:
        at = self.now() + timedelta(seconds=seconds)
        return at.astimezone(_OFFSET).isoformat(timespec="milliseconds")


def _check_preference(body: Json) -> None:
    if not body.get("items"):
        raise RefusedError(2101, "items can't be null or empty")
    for item in body["items"]:
        is_valid = item.get("title") and type(item.get("quantity")) is int and item["quantity"] > 0
        if not is_valid or item.get("currency_id") != "BRL" or _amount(item.get("unit_price", 0)) <= 0:
            raise RefusedError(2102, "unit_price invalid")
    methods = body.get("payment_methods", {})
    excluded = {each["id"] for each in methods.get("excluded_payment_types", ())}
    if not excluded <= EXCLUDABLE or excluded >= EXCLUDABLE - {"atm"}:
        raise RefusedError(2103, "excluded_payment_types invalid")
    if not 1 <= methods.get("installments", 1) <= 36:
        raise RefusedError(2104, "installments invalid")
    if "@" not in (body.get("payer") or {}).get("email", "@"):
        raise RefusedError(2105, "payer.email invalid")
    if len(body.get("external_reference") or "") > 256:
        raise RefusedError(2106, "external_reference must be at most 256 characters")


def _amount(value: Any) -> Decimal:
    amount = Decimal(value)
    if amount != amount.quantize(Decimal("0.01")):
        raise RefusedError(4037, "Invalid transaction amount")
    return amount
