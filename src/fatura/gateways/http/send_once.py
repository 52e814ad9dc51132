"""Send a request that changes something at most once."""

import aiohttp

NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
"""Failures before the first byte of a request was sent: DNS, connecting, TLS."""


class _BrokenError(aiohttp.ClientError):
    """The connection broke during a request that changes something."""


async def send_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep aiohttp from repeating a PUT or DELETE after the connection broke.

    The first request may have had an effect. The answer to a repeat would hide this, for example if it is a 429.
    """
    try:
        return await handler(request)
    except NOT_SENT:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _BrokenError from error
