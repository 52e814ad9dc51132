"""Liveness and readiness (spec 4.1)."""

from typing import Annotated, Literal

from msgspec import Meta

from fatura.views.view import View


class AliveView(View):
    """The process answers."""

    status: Literal["ok"]


class ChecksView(View):
    """The results of the readiness checks."""

    database: bool
    clock: Annotated[
        bool, Meta(description="false when the host's clock is wrong; the API then answers only reads.")
    ]
    workers: Annotated[
        bool,
        Meta(
            description="false when a lane of background work has failed to look for due work for a minute."
        ),
    ]


class ReadinessView(View):
    """Whether to send traffic to this process."""

    status: Literal["ok", "degraded"]
    checks: ChecksView
