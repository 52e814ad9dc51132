"""Ask a provider to check the credentials of a new or changed gateway connection (D-43)."""

import asyncio

from fatura.domain.account import Account
from fatura.domain.errors import account_suspended, invalid_fields
from fatura.gateways import port
from fatura.store import suspension
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import Work, in_transaction


async def check(deps: Deps, account: Account, gateway: port.Gateway) -> str | None:
    """Ask the provider to check the credentials.

    Return the provider's id of the account to which the credentials belong, or None if the provider has no such id.
    Raises EngineError: `engine.invalid_request`, `engine.rate_limited`, `engine.unavailable`,
    `engine.account_suspended`.
    """
    await in_transaction(deps, account, _refuse_suspended)
    try:
        with deps.gateway_requests.one(account.account_id):
            async with asyncio.timeout(port.CALL_TIMEOUT_SECONDS):
                return await gateway.check_credentials()
    except port.AuthFailedError as error:
        refused = ("credentials", "were refused by the gateway; check them there")
        raise invalid_fields(error.field or refused) from None
    except (port.TransientError, port.UnknownOutcomeError, TimeoutError) as error:
        reason = str(error) or "the gateway did not answer"
        raise invalid_fields(
            ("credentials", f"could not be checked at the gateway, try again: {reason}")
        ) from None


async def _refuse_suspended(work: Work) -> None:
    # check this again: the account may have been suspended after the request was admitted
    if not await suspension.may_work(work.tx):
        raise account_suspended()
