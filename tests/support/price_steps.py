"""Steps of the pricing scenarios: create a variable product, read the only invoice."""

from tests.support.price_server import PriceServer
from tests.support.world import Json, Merchant, World


async def usage(
    world: Merchant, prices: PriceServer, *, path: str = "/price", cap: int = 100_000, **fields: Json
) -> Json:
    """Create a variable product whose price endpoint is a path of the server `prices`."""
    pricing = {"mode": "endpoint", "url": prices.url(path), "capCents": cap}
    return await world.made("/v1/products", {"name": "Usage", "pricing": pricing, **fields})


async def only_invoice(world: World) -> Json:
    (invoice,) = await world.invoices()
    return (await world.get(f"/v1/invoices/{invoice['id']}")).json
