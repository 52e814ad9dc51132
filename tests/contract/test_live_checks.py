"""The checks of `make live-gateways` pass with simulated providers, so they can fail only at a provider's sandbox."""

import pytest

from fatura.domain.offer import PaymentMethod
from fatura.gateways.http import ProviderClient
from tests.contract.asaas_provider import AsaasProvider
from tests.contract.pix_provider import PixProvider
from tests.contract.provider import NOW
from tests.doubles.asaas.server import open_double as open_asaas
from tests.doubles.pix.server import open_double as open_bank
from tests.live.checks import check_charges, check_refusals
from tests.live.test_sandboxes import UNKNOWN


@pytest.mark.parametrize("method", list(PaymentMethod))
async def test_the_simulated_asaas_passes(method: PaymentMethod) -> None:
    """[D-261]"""
    async with open_asaas(NOW.date()) as double:
        client = ProviderClient(is_exempt=True)
        gateway = await AsaasProvider(double, client).connect()
        await check_charges(gateway, method, now=NOW)
        await check_refusals(gateway, UNKNOWN["asaas"])
        await client.close()


async def test_the_simulated_bank_passes() -> None:
    """[D-262]"""
    async with open_bank(lambda: NOW) as double:
        client = ProviderClient(is_exempt=True, new_ssl_context=double.client_context)
        gateway = await PixProvider(double, client).connect()
        await check_charges(gateway, PaymentMethod.PIX, now=NOW)
        await check_refusals(gateway, UNKNOWN["pix"])
        await client.close()
