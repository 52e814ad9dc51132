"""Store the new stages of polled charges. Drop the answer of a poll if its charge has changed since the poll began."""

from collections.abc import Sequence
from dataclasses import replace

from fatura.domain.charge import PAYABLE, STAGES, ChargeStage, InvoiceCharge, may_move
from fatura.gateways.port import Charge, ChargeState
from fatura.store.charging import charges, confirmed_charges
from fatura.store.charging.confirmed_charges import Answered
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.payments import second_charges
from fatura.usecases.reconciliation import missing_charges
from fatura.usecases.reconciliation.invoice_polls import Asked, Poll, answers_of
from fatura.usecases.transaction import Work


async def record(
    work: Work, polls: Sequence[Poll]
) -> tuple[Sequence[Poll], Sequence[tuple[ObservedGateway, Charge]]]:
    """Store the stages of the polled charges of locked invoices.

    `polls` are results of `without_outdated`. Return the polls that the caller must apply to the invoices, and the
    second charges to cancel, each with its gateway. A poll is left out if its invoice got another charge since the poll
    began. A charge that the gateway shows as payable is a second charge if the engine has canceled or replaced it.
    """
    newest = await charges.newest(work.tx, [poll.invoice.invoice_id for poll in polls])
    answers: list[Answered] = []
    seconds: list[tuple[ObservedGateway, Charge]] = []
    for poll in polls:
        own = newest[poll.invoice.invoice_id]
        for charge, answer in [(each.charge, each.answer) for each in poll.asked]:
            if answer is None:
                continue
            stage = ChargeStage(answer.state)
            is_allowed = may_move(charge.stage, stage) and (
                stage not in PAYABLE or own.charge_id == charge.charge_id
            )
            if is_allowed or stage is charge.stage:
                closed_at = (charge.closed_at or work.now) if STAGES[stage].is_closed else None
                answers.append(Answered(charge, stage, answer.pay, closed_at))
            elif stage in PAYABLE and charge.stage is not ChargeStage.PAID and poll.gateway is not None:
                known = own.gateway_invoice_id
                await second_charges.emit(
                    work,
                    charge.invoice_id,
                    connection_id=charge.connection_id,
                    known=known,
                    charge=answer,
                )
                seconds.append((poll.gateway, answer))
    current = [each for each in polls if each.newest.charge_id == newest[each.invoice.invoice_id].charge_id]
    answers += [
        await missing_charges.record(work, poll.decisive.charge, polled_at=poll.polled_at)
        for poll in current
        if poll.decisive.is_unknown and poll.decisive.charge.is_unpaid_at_gateway
    ]
    await confirmed_charges.record(work.tx, answers, now=work.now)
    await second_charges.note_canceled(
        work, [(each.connection_id, each.charge) for each in answers_of(polls)]
    )
    return current, seconds


async def without_outdated(work: Work, polls: Sequence[Poll]) -> Sequence[Poll]:
    """Lock the charges of these polls, and return the polls without outdated answers.

    An answer is outdated if another transaction has changed the charge's stage since the poll began. But an answer that
    says that the charge is paid is never outdated.
    """
    locked = await charges.lock(work.tx, [each.charge for poll in polls for each in poll.asked])
    return [
        replace(
            poll, asked=tuple(_without_outdated(each, locked[each.charge.charge_id]) for each in poll.asked)
        )
        for poll in polls
    ]


def _without_outdated(asked: Asked, charge: InvoiceCharge) -> Asked:
    """Return `asked` with the stored charge as it is now, and without the answer if the answer is outdated."""
    has_changed = charge.stage is not asked.charge.stage
    if has_changed and not (asked.answer is not None and asked.answer.state is ChargeState.PAID):
        return Asked(charge)
    return replace(asked, charge=charge)
