"""What moving a plan's subscribers did, or would do (D-23)."""

from pydantic import Field

from fatura.api.models.shared import Shown, ShownId, ShownTotalCents
from fatura.domain.propagation import SkipReason


class SkippedSubscription(Shown):
    """A subscriber who stays on the version it has."""

    subscriptionId: ShownId
    reason: SkipReason = Field(
        description="`gateway_connection_inactive`: its connection is inactive or issues no charges; "
        "`payment_method_unsupported`, `installments_unsupported`: its connection does not issue the new terms."
    )


class Propagation(Shown):
    """What moving a plan's subscribers did, or would do in a dry run (D-23)."""

    version: int = Field(ge=1, description="The plan's current version.", examples=[3])
    moved: int = Field(
        ge=0, description="Subscribers moved; who was on the version already does not count.", examples=[1200]
    )
    skipped: list[SkippedSubscription] = Field(description="Who could not be moved, by id.")
    nextCycleCentsBefore: ShownTotalCents = Field(
        description="Fixed part of all moved subscribers' next cycle on their old terms, in cents."
    )
    nextCycleCentsAfter: ShownTotalCents = Field(
        description="The same on the new terms; variable items count as zero in both."
    )
