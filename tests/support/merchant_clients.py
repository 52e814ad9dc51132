"""Clients that call merchants' servers, and an account in whose name they call."""

import ssl
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from fatura import settings
from fatura.bootstrap import url_rules
from fatura.domain.account import Account
from fatura.domain.credentials import Mode
from fatura.domain.endpoint_url import UrlRules
from fatura.outbound.http import MerchantClient
from fatura.outbound.http.dialing import Resolver
from tests.support.unlimited import LOOPBACK

ACCOUNT = Account(UUID("019a2f6e-1c3b-7d52-9f0a-6b1c2d3e4f50"), Mode.SANDBOX, "BRL", timedelta())


def rules(allowed: Sequence[str] = (), *, ports: str = "") -> UrlRules:
    """Return the URL rules of sandbox accounts for these values of FATURA_OUTBOUND_ALLOW and FATURA_OUTBOUND_PORTS."""
    environ = {"FATURA_OUTBOUND_ALLOW": ",".join(allowed), "FATURA_OUTBOUND_PORTS": ports}
    return url_rules(settings.read(environ))[Mode.SANDBOX]


def merchant_client(
    allowed: Sequence[str] = (LOOPBACK,),
    *,
    ports: str = "",
    denied: Sequence[settings.Network] = (),
    resolver: Resolver | None = None,
    ssl_context: ssl.SSLContext | None = None,
) -> MerchantClient:
    """Return a client with the same rules for all accounts; by default, it may call any port of 127.0.0.1."""
    same = rules(allowed, ports=ports)
    return MerchantClient(
        dict.fromkeys(Mode, same), denied=denied, resolver=resolver, ssl_context=ssl_context
    )
