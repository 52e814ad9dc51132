"""Call the engine with openapi-python-client's client, and check the types of one success and of one error."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import sys
from uuid import uuid4

from fatura_client import AuthenticatedClient
from fatura_client.api.products import create_product, read_product
from fatura_client.models import FixedPricing, Problem, Product, ProductForm


def main(url: str, api_key: str) -> None:
    client = AuthenticatedClient(base_url=url, token=api_key)
    form = ProductForm(name="Hosting", pricing=FixedPricing(mode="fixed", monthly_price_cents=9990))
    created = create_product.sync(client=client, body=form, idempotency_key=str(uuid4()))
    assert isinstance(created, Product), created
    assert created.monthly_price_cents == 9990

    missing = read_product.sync(uuid4(), client=client)
    assert isinstance(missing, Problem), missing
    assert missing.type_ == "engine.not_found", missing.type_


main(*sys.argv[1:])
