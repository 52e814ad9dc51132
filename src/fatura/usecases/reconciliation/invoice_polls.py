"""Poll an invoice: read its confirmed charges from the gateway, with no transaction open.

A confirmed charge is one that a gateway's answer has shown, so the engine has stored the gateway's id of it.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from fatura.domain.charge import ChargeStage, InvoiceCharge
from fatura.gateways.port import (
    CALL_TIMEOUT_SECONDS,
    Charge,
    ChargeState,
    GatewayError,
    InvalidAnswerError,
    NotFoundError,
)
from fatura.observability import log
from fatura.store.charging.claims import ClaimedInvoice
from fatura.usecases.connections.charge_calls import CallsAbout
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.payments import replacement
from fatura.usecases.payments.gateway_payments import ChargeAnswer


@dataclass(frozen=True, slots=True)
class Asked:
    """A confirmed charge, with the gateway's answer about it.

    `answer` is None if the gateway returned no charge. `is_unknown` is true if the gateway answered that it does not
    know the charge.
    """

    charge: InvoiceCharge
    answer: Charge | None = None
    is_unknown: bool = False

    @property
    def has_answer(self) -> bool:
        return self.answer is not None or self.is_unknown

    @property
    def shows_change(self) -> bool:
        shown = ChargeStage.MISSING if self.answer is None else ChargeStage(self.answer.state)
        return self.has_answer and shown is not self.charge.stage


@dataclass(frozen=True, slots=True)
class Poll:
    """The poll of a leased invoice: all its confirmed charges, the newest one last.

    `paid_at` is the instant of the newest payment that was recorded before the answers of this poll.
    """

    invoice: ClaimedInvoice
    gateway: ObservedGateway | None
    polled_at: datetime
    asked: tuple[Asked, ...]
    paid_at: datetime | None = None

    @property
    def newest(self) -> InvoiceCharge:
        """Return the newest of the polled charges. The invoice may have got a newer charge since the poll began."""
        return self.asked[-1].charge

    @property
    def decisive(self) -> Asked:
        """Return the charge that decides the next state: a paid invoice's paid charge; otherwise, the newest charge.

        An older paid charge of an unpaid invoice decides nothing: its payment covered only a part or was refunded.
        """
        if self.invoice.paid_at is None:
            return self.asked[-1]
        paid = (each for each in self.asked if each.answer and each.answer.state is ChargeState.PAID)
        return next(paid, self.asked[-1])

    @property
    def is_closed(self) -> bool:
        """Return whether the decisive charge is paid or canceled.

        The caller records this state even if a webhook made the invoice due again during the poll.
        """
        answer = self.decisive.answer
        return answer is not None and answer.state in {ChargeState.PAID, ChargeState.CANCELED}

    @property
    def is_released(self) -> bool:
        """Return whether the newest charge is canceled or has expired at the gateway, so that nobody can pay it."""
        answer = self.asked[-1].answer
        return answer is not None and answer.state in replacement.RELEASED

    @property
    def has_all_answers(self) -> bool:
        return all(each.has_answer for each in self.asked)

    @property
    def is_answered(self) -> bool:
        """Return whether the gateway has answered about the decisive charge; for a paid invoice, about every charge."""
        return self.decisive.has_answer and (self.invoice.paid_at is None or self.has_all_answers)

    def changing(self, paid_now: Collection[str]) -> Sequence[CallsAbout]:
        """Return the calls that showed another state of their charge, or no charge (D-267).

        Also return the calls about the charges in `paid_now`, which have new payments, refunds or disputes.
        """
        return [
            CallsAbout(each.charge.charge_id, self.gateway, [charge_id])
            for each in self.asked
            if (charge_id := each.charge.gateway_invoice_id) is not None
            and (charge_id in paid_now or each.shows_change)
        ]


def answers_of(polls: Sequence[Poll]) -> Sequence[ChargeAnswer]:
    return [
        ChargeAnswer(each.charge.invoice_id, each.charge.connection_id, each.answer)
        for poll in polls
        for each in poll.asked
        if each.answer is not None
    ]


async def ask(poll: Poll) -> Poll:
    gateway = poll.gateway
    if gateway is None:
        return poll
    return replace(poll, asked=tuple(await asyncio.gather(*(_ask(gateway, each) for each in poll.asked))))


async def _ask(gateway: ObservedGateway, asked: Asked) -> Asked:
    """Read a charge from the gateway. Failures are not raised, so that the other polls continue.

    A call that the gateway refused or did not answer is logged only at debug level, because a metric counts it.
    """
    charge = asked.charge
    assert charge.gateway_invoice_id is not None, "only a charge with an id is polled"
    try:
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            answer = await gateway.get_charge(charge.gateway_invoice_id)
        return replace(asked, answer=answer.of_invoice(charge.invoice_id))
    except NotFoundError:
        return replace(asked, is_unknown=True)
    except InvalidAnswerError as error:
        log.warning("gateway.poll_answer_invalid", invoice_id=str(charge.invoice_id), error=error)
    except (GatewayError, TimeoutError) as error:
        log.debug("gateway.poll_unanswered", invoice_id=str(charge.invoice_id), error=error)
    except Exception:  # noqa: BLE001 - logged here; the charge is polled again
        log.exception("charge.poll_failed", invoice_id=str(charge.invoice_id))
    return asked
