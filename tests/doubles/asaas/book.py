"""The accounts of the simulated Asaas: customers, payments, and the rules by which Asaas refuses requests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import uuid4

from fatura.domain import tax_document

FEES = {"PIX": 199, "BOLETO": 199, "CREDIT_CARD": 49}
MIN_CENTS = 500
MAX_INSTALLMENTS = 21
PAID = frozenset({"RECEIVED", "CONFIRMED", "REFUNDED"})

Json = dict[str, Any]


class RefusedError(Exception):
    """A request that Asaas answers with an error."""

    def __init__(self, code: str, description: str, *, status: int = 400) -> None:
        super().__init__(code)
        self.status = status
        self.body = {"errors": [{"code": code, "description": description}]}


@dataclass(slots=True)
class Account:
    """An account of the simulated Asaas. `today` is its local date."""

    today: date
    wallet_id: str = field(default_factory=lambda: str(uuid4()))
    customers: dict[str, Json] = field(default_factory=dict[str, Json])
    payments: dict[str, Json] = field(default_factory=dict[str, Json])
    installments: dict[str, Json] = field(default_factory=dict[str, Json])
    new_group: Callable[[], str] = lambda: str(uuid4())
    """Returns the id of new installments."""

    def create_customer(self, body: Json) -> Json:
        _check_customer(body)
        created: Json = {
            "object": "customer",
            "id": f"cus_{len(self.customers):012}",
            "dateCreated": self.today.isoformat(),
            "personType": "FISICA",
            "deleted": False,
            "notificationDisabled": False,
            "country": "Brasil",
            **body,
        }
        self.customers[created["id"]] = created
        return created

    def update_customer(self, customer_id: str, body: Json) -> Json:
        if customer_id not in self.customers:
            raise _unknown("Cliente")
        _check_customer({**self.customers[customer_id], **body})
        self.customers[customer_id] |= body
        return self.customers[customer_id]

    def create_payment(self, body: Json) -> Json:
        """Create a payment, or the installments of a card. Return the payment, or the first installment."""
        self._check_payment(body)
        count = body.get("installmentCount", 1)
        total = _cents(body["totalValue"] if count > 1 else body["value"])
        group = self.new_group() if count > 1 else None
        if group is not None:
            self.installments[group] = {"id": group, "deleted": False}
        due, made = date.fromisoformat(body["dueDate"]), list[Json]()
        for number in range(count):
            value = total // count if number < count - 1 else total - total // count * (count - 1)
            month = due.month - 1 + number
            part_due = due.replace(year=due.year + month // 12, month=month % 12 + 1, day=min(due.day, 28))
            made.append(
                self._new(body, value, due=part_due if count > 1 else due, group=group, number=number + 1)
            )
        return made[0]

    def _new(self, body: Json, value: int, *, due: date, group: str | None, number: int) -> Json:
        key = uuid4().hex[:16]
        description = body.get("description")
        created: Json = {
            "object": "payment",
            "id": f"pay_{key}",
            "dateCreated": self.today.isoformat(),
            "customer": body["customer"],
            "checkoutSession": None,
            "paymentLink": None,
            "value": _reais(value),
            "netValue": _reais(value - FEES[body["billingType"]]),
            "originalValue": None,
            "interestValue": None,
            "description": description if group is None else f"Parcela {number}. {description or ''}",
            "billingType": body["billingType"],
            "pixTransaction": None,
            "status": "PENDING",
            "dueDate": due.isoformat(),
            "originalDueDate": due.isoformat(),
            "paymentDate": None,
            "clientPaymentDate": None,
            "installmentNumber": None if group is None else number,
            "invoiceUrl": f"https://sandbox.asaas.example/i/{key}",
            "invoiceNumber": str(15_924_714 + len(self.payments)),
            "externalReference": body.get("externalReference"),
            "deleted": False,
            "anticipated": False,
            "anticipable": False,
            "creditDate": None,
            "estimatedCreditDate": None,
            "transactionReceiptUrl": None,
            "nossoNumero": "12745149" if body["billingType"] == "BOLETO" else None,
            "bankSlipUrl": None,
            "lastInvoiceViewedDate": None,
            "lastBankSlipViewedDate": None,
            "discount": {"value": 0, "limitDate": None, "dueDateLimitDays": 0, "type": "FIXED"},
            "fine": {"value": 0, "type": "FIXED"},
            "interest": {"value": 0, "type": "PERCENTAGE"},
            "postalService": False,
            "escrow": None,
            "refunds": None,
        }
        if group is not None:
            created["installment"] = group
        self.payments[created["id"]] = created
        return created

    def payment(self, payment_id: str) -> Json:
        if payment_id not in self.payments:
            raise _unknown("Cobrança")
        return self.payments[payment_id]

    def parts(self, charge_id: str) -> Sequence[Json]:
        """Return the payment with this id, or all installments of this id."""
        found = [each for each in self.payments.values() if each.get("installment") == charge_id]
        return found or [self.payment(charge_id)]

    def listed(self, query: Json) -> Sequence[Json]:
        """Return the payments that match a query, newest first, without deleted ones."""
        since, until = query.get("dateCreated[ge]", ""), query.get("dateCreated[le]", "9")
        return [
            each
            for each in reversed(self.payments.values())
            if not each["deleted"]
            and since <= each["dateCreated"] <= until
            and query.get("externalReference") in {None, each["externalReference"]}
            and query.get("installment") in {None, each.get("installment")}
        ]

    def pay(self, charge_id: str) -> None:
        for part in self.parts(charge_id):
            assert part["status"] in {"PENDING", "OVERDUE"}, "only an unpaid payment is paid"
            is_card = part["billingType"] == "CREDIT_CARD"
            today = self.today.isoformat()
            settled = {"confirmedDate": today} if is_card else {"paymentDate": today}
            part.update(settled, status="CONFIRMED" if is_card else "RECEIVED", clientPaymentDate=today)

    def delete(self, charge_id: str) -> Json:
        parts = self.parts(charge_id)
        if any(part["deleted"] or part["status"] not in {"PENDING", "OVERDUE"} for part in parts):
            raise RefusedError("invalid_action", "Só é possível remover cobranças pendentes ou vencidas.")
        for part in parts:
            part["deleted"] = True
        return {"deleted": True, "id": charge_id}

    def refund(self, payment_id: str, body: Json) -> Json:
        payment = self.payment(payment_id)
        if payment["status"] not in PAID or payment["billingType"] == "BOLETO":
            raise RefusedError(
                "invalid_action", "Somente cobranças recebidas ou confirmadas podem ser estornadas."
            )
        done = list[Json](payment["refunds"] or ())
        value = _cents(body.get("value", payment["value"]))
        left = _cents(payment["value"]) - sum(_cents(each["value"]) for each in done)
        if not 0 < value <= left:
            raise RefusedError("invalid_value", "O valor do estorno é maior que o valor da cobrança.")
        done.append(
            {
                "dateCreated": f"{self.today} 12:00:{len(done):02}",
                "status": "DONE",
                "value": _reais(value),
                "description": body.get("description"),
                "transactionReceiptUrl": None,
            }
        )
        payment |= {"refunds": done, "status": "REFUNDED" if value == left else payment["status"]}
        return payment

    def _check_payment(self, body: Json) -> None:
        if body.get("customer") not in self.customers:
            raise RefusedError("invalid_customer", "Customer inválido ou não informado.")
        if body.get("billingType") not in FEES:
            raise RefusedError("invalid_billingType", "O tipo de cobrança é inválido.")
        count = body.get("installmentCount", 1)
        if "installmentCount" in body and not 2 <= count <= MAX_INSTALLMENTS:
            raise RefusedError("invalid_installmentCount", "O número de parcelas é inválido.")
        value = _cents(body.get("totalValue" if count > 1 else "value") or 0)
        if value < MIN_CENTS * count:
            raise RefusedError("invalid_value", "O valor da cobrança deve ser de no mínimo R$ 5,00.")
        if body.get("dueDate", "") < self.today.isoformat():
            raise RefusedError("invalid_dueDate", "A data de vencimento não pode ser inferior à de hoje.")
        if len(body.get("description") or "") > 500:
            raise RefusedError("invalid_description", "A descrição é maior que 500 caracteres.")


def _check_customer(body: Json) -> None:
    if not body.get("name"):
        raise RefusedError("invalid_name", "O nome do cliente deve ser informado.")
    document = body.get("cpfCnpj") or ""
    if len(document) not in {11, 14} or tax_document.refusal(document):
        raise RefusedError("invalid_object", "O CPF/CNPJ informado é inválido.")


def _cents(value: Any) -> int:
    scaled = Decimal(value) * 100
    if scaled != int(scaled):
        raise RefusedError("invalid_value", "O valor tem mais de duas casas decimais.")
    return int(scaled)


def _reais(cents: int) -> Decimal:
    """Return an amount as Asaas writes it: without zeros at the end."""
    value = Decimal(cents).scaleb(-2).normalize()
    return value if value != value.to_integral_value() else value.quantize(Decimal(1))


def _unknown(what: str) -> RefusedError:
    return RefusedError("not_found", f"{what} não encontrado(a).", status=404)
