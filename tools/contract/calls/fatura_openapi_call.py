"""Call the engine with openapi-generator's Python client, and check the types of one success and of one error."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

import sys
from typing import Any, assert_type
from uuid import uuid4

from fatura_openapi import ApiClient, Configuration, FixedPricing, Problem, Product, ProductForm, ProductsApi
from fatura_openapi.exceptions import NotFoundException
from fatura_openapi.models.product_form_pricing import ProductFormPricing


def main(url: str, api_key: str) -> None:
    products = ProductsApi(ApiClient(Configuration(host=url, access_token=api_key)))
    pricing = ProductFormPricing(FixedPricing(mode="fixed", monthlyPriceCents=9990))
    created = products.create_product(str(uuid4()), ProductForm(name="Hosting", pricing=pricing))
    assert_type(created, Product)
    assert created.monthly_price_cents == 9990

    problem = refusal_of(products)
    assert isinstance(problem, Problem), problem
    assert problem.type == "engine.not_found", problem.type


def refusal_of(products: ProductsApi) -> Any:
    try:
        return products.read_product(uuid4())
    except NotFoundException as error:
        return error.data


main(*sys.argv[1:])
