"""Find connections and providers over the API, and show a connection (D-259)."""

import json
from typing import Any
from uuid import UUID

from fatura.cli.client import ApiError, Client
from fatura.cli.output import echo

GATEWAYS = "/v1/integration/gateways"


async def provider(client: Client, name: str) -> Any:
    """Return a provider that the account can connect. Raises ApiError if there is none of this name."""
    offered = {each["provider"]: each for each in (await client.get("/v1/integration/providers"))["data"]}
    if name in offered:
        return offered[name]
    mode = (await client.get("/v1/integration"))["mode"]
    raise ApiError(
        f"the API key belongs to a {mode} account, which cannot connect {name}; it can connect {', '.join(offered)}. "
        "Sandbox accounts connect only the sandbox, and live accounts the other providers"
    )


async def connection(client: Client, connection_id: UUID) -> Any:
    """Return a connection of the account. Raises ApiError if there is none with this id."""
    for each in (await client.get(GATEWAYS))["data"]:
        if each["connectionId"] == str(connection_id):
            return each
    raise ApiError(f"there is no connection {connection_id}; `fatura gateway list` shows all")


async def active(client: Client, provider: str) -> list[str]:
    """Return the ids of the active connections to a provider."""
    found = (await client.get(GATEWAYS))["data"]
    return [each["connectionId"] for each in found if each["active"] and each["provider"] == provider]


def split(known: Any, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the values of a provider's fields as the members `settings` and `credentials` of a request."""
    return {
        kind: {field["name"]: values[field["name"]] for field in known[kind] if field["name"] in values}
        for kind in ("settings", "credentials")
    }


def show(shown: Any, known: Any) -> None:
    """Print a connection to a known provider with its settings, without the secret ones."""
    minimum = shown["minAmountCents"]
    refunds = (
        "through the gateway" if known["returnsMoney"] else "you return the money, and Fatura records it"
    )
    lines = {
        "connection": shown["connectionId"],
        "provider": shown["provider"],
        "label": shown["label"],
        "active": "yes" if shown["active"] else "no",
        "methods": ", ".join(shown["methods"]) or "none: it creates no charges",
        "installments": f"up to {shown['maxInstallments']} on a card"
        if shown["maxInstallments"] > 1
        else None,
        "lowest charge": None if minimum is None else f"{minimum} cents",
        "refunds": refunds if shown["refunds"] else "only outside Fatura",
        **{name: _text(value) for name, value in shown["settings"].items()},
    }
    width = max(map(len, lines))
    for name, text in lines.items():
        if text is not None:
            echo(f"{name:<{width}}  {text}")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
