"""Subscriptions, customers, and rules for subscribing and canceling (spec 2.4, 3.2)."""

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from uuid import UUID

from fatura.domain.errors import CUSTOMER_ERASED, SUBSCRIPTION_CANCELED, EngineError
from fatura.domain.offer import PaymentMethod

ERASED_REF = "erased-"
"""Start of every erased customer's `externalRef`. No other `externalRef` of a customer may start with it (D-226)."""
ERASED = "[erased]"
"""Replaces the name of an erased customer, and each text about the customer (D-62)."""

MAX_START_CYCLE = 1200
"""Highest cycle with which a subscription may start (D-58)."""


class SubscriptionStatus(StrEnum):
    """A canceled subscription cannot become active again (spec 3.2)."""

    ACTIVE = "active"
    CANCELED = "canceled"


class PaymentMethodSource(StrEnum):
    """Whether a subscription uses the plan's payment method or overrides it (spec 2.4)."""

    PLAN_DEFAULT = "plan_default"
    OVERRIDE = "override"


@dataclass(frozen=True, slots=True)
class Customer:
    """A customer, without the encrypted tax document (spec 2.4, D-15). `email` is None for an erased customer."""

    customer_id: UUID
    external_ref: str
    name: str
    email: str | None

    @property
    def is_erased(self) -> bool:
        return self.email is None

    def erased(self) -> "Customer":
        """Return the customer without personal data (D-62)."""
        return Customer(self.customer_id, f"{ERASED_REF}{self.customer_id}", ERASED, None)


@dataclass(frozen=True, slots=True)
class CustomerProfile:
    """A customer with the fields that only the routes of customers show (D-15)."""

    customer: Customer
    has_document: bool
    created_at: datetime
    erased_at: datetime | None


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription with its customer (spec 2.4). `next_period_start` and `next_due_date` describe the next cycle.

    `start_cycle` is the cycle of the subscription's first invoice. `cycle_count` is the number of the newest billed
    cycle, or `start_cycle - 1` before the first invoice (D-58).
    """

    subscription_id: UUID
    external_ref: str | None
    plan_id: UUID
    plan_version_id: UUID
    plan_version: int
    customized: bool
    customer: Customer
    status: SubscriptionStatus
    charge_day: int
    payment_method: PaymentMethod
    payment_method_source: PaymentMethodSource
    connection_id: UUID | None
    start_cycle: int
    cycle_count: int
    commitment_cycles: int | None
    next_period_start: date
    next_due_date: date
    started_at: datetime
    canceled_at: datetime | None


class TermsReason(StrEnum):
    """Why a subscription got its terms (D-54)."""

    ENROLLED = "enrolled"
    CUSTOMIZED = "customized"
    PROPAGATED = "propagated"


@dataclass(frozen=True, slots=True)
class TermsChange:
    """One entry of a subscription's history of terms: these terms apply from the cycle `from_cycle` on (D-54)."""

    from_cycle: int
    plan_id: UUID
    plan_version: int
    customized: bool
    changed_at: datetime
    reason: TermsReason


@dataclass(frozen=True, slots=True)
class Commitment:
    """The number of cycles agreed in the terms, and the newest cycle that was billed (spec 4.4)."""

    cycles: int | None
    completed: int
    fulfilled: bool


def commitment(subscription: Subscription) -> Commitment:
    """Return the commitment that a cancellation reports. If there is no commitment, `fulfilled` is true (D-23a)."""
    cycles, completed = subscription.commitment_cycles, subscription.cycle_count
    return Commitment(cycles, completed, fulfilled=cycles is None or completed >= cycles)


def effective_method(
    default: PaymentMethod, override: PaymentMethod | None
) -> tuple[PaymentMethod, PaymentMethodSource]:
    """Return the payment method and its source: the subscription's override, or else the terms' default (spec 4.4)."""
    if override is None:
        return default, PaymentMethodSource.PLAN_DEFAULT
    return override, PaymentMethodSource.OVERRIDE


def check_not_erased(customer: Customer) -> None:
    """Raise EngineError `engine.customer_erased` for an erased customer (D-227)."""
    if customer.is_erased:
        raise EngineError(
            CUSTOMER_ERASED,
            "The customer is erased and cannot change. Subscribe the person with another externalRef, which creates a "
            "new customer.",
        )


def check_active(subscription: Subscription) -> None:
    """Raise EngineError `engine.subscription_canceled` for a canceled subscription (spec 3.2)."""
    if subscription.status is SubscriptionStatus.CANCELED:
        raise EngineError(
            SUBSCRIPTION_CANCELED,
            "The subscription is canceled and has no next invoice; create a new subscription instead.",
        )
