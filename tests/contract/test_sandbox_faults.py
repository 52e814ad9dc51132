"""Faults that a merchant queues in the sandbox make the next calls fail with the matching errors (D-46)."""

import asyncio
from uuid import UUID, uuid4

import pytest

from fatura.domain.sandbox import SandboxFault, SandboxOperation
from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import (
    GatewayError,
    PermanentError,
    ProductMirror,
    TransientError,
    UnknownOutcomeError,
)
from fatura.store.db import Database
from tests.contract.provider import charge_request
from tests.contract.sandbox_provider import SandboxProvider

CREATE, GET = SandboxOperation.CREATE_CHARGE, SandboxOperation.GET_CHARGE
CANCEL = SandboxOperation.CANCEL_CHARGE
LIST, PRODUCT = SandboxOperation.LIST_CHARGES, SandboxOperation.CREATE_PRODUCT


@pytest.fixture
async def gateway(db: Database) -> SandboxGateway:
    provider = SandboxProvider(db)
    return provider.gateway(await provider.add(productCatalog=True))


async def run(
    gateway: SandboxGateway, operation: SandboxOperation, charge_id: str, product_id: UUID
) -> object:
    match operation:
        case SandboxOperation.CREATE_CHARGE:
            return await gateway.create_charge(charge_request())
        case SandboxOperation.GET_CHARGE:
            return await gateway.get_charge(charge_id)
        case SandboxOperation.CANCEL_CHARGE:
            return await gateway.cancel_charge(charge_id)
        case SandboxOperation.LIST_CHARGES:
            return await gateway.find_charge(uuid4(), 1)
        case SandboxOperation.CREATE_PRODUCT:
            return await gateway.mirror_product(ProductMirror(product_id, "Gold", None))


@pytest.mark.parametrize("operation", SandboxOperation)
@pytest.mark.parametrize(
    ("fault", "writing", "reading", "was_done"),
    [
        (SandboxFault.TIMEOUT_BEFORE, UnknownOutcomeError, TransientError, False),
        (SandboxFault.TIMEOUT_AFTER, UnknownOutcomeError, TransientError, True),
        (SandboxFault.SERVER_ERROR, UnknownOutcomeError, TransientError, False),
        (SandboxFault.RATE_LIMITED, TransientError, TransientError, False),
        (SandboxFault.REJECTED, PermanentError, PermanentError, False),
    ],
)
async def test_every_fault_affects_every_operation(
    gateway: SandboxGateway,
    operation: SandboxOperation,
    fault: SandboxFault,
    writing: type[GatewayError],
    reading: type[GatewayError],
    *,
    was_done: bool,
) -> None:
    """With `timeout_after`, the operation is executed before it fails. With other faults, it only fails. [D-46]"""
    charge_id, product_id = (await gateway.create_charge(charge_request())).charge_id, uuid4()
    await gateway.add_fault(operation, fault, times=2)

    for _ in range(2):
        with pytest.raises(GatewayError) as met:
            await run(gateway, operation, charge_id, product_id)
        assert type(met.value) is (writing if operation in {CREATE, CANCEL, PRODUCT} else reading)

    *_, first = await gateway.charges(None)
    assert (first.status == "canceled") is (was_done and operation is CANCEL)
    assert len(await gateway.charges(None)) == 1 + 2 * (was_done and operation is CREATE)
    assert len(await gateway.products()) == (was_done and operation is PRODUCT)
    for every in SandboxOperation:
        await run(gateway, every, charge_id, product_id)


async def test_faults_take_effect_in_the_order_they_were_queued(gateway: SandboxGateway) -> None:
    queued = [SandboxFault.REJECTED, SandboxFault.RATE_LIMITED] * 3
    for fault in queued:
        await gateway.add_fault(LIST, fault, times=2)

    met = [await _raised(gateway) for _ in range(13)]

    rejected, limited = [PermanentError] * 2, [TransientError] * 2
    assert met == [*(rejected + limited) * 3, None]


async def test_concurrent_calls_take_a_fault_as_often_as_it_was_queued(gateway: SandboxGateway) -> None:
    await gateway.add_fault(LIST, SandboxFault.RATE_LIMITED, times=3)
    await gateway.add_fault(LIST, SandboxFault.REJECTED, times=4)

    met = await asyncio.gather(*(_raised(gateway) for _ in range(16)))

    assert (met.count(TransientError), met.count(PermanentError), met.count(None)) == (3, 4, 9)


async def test_a_fault_affects_only_its_own_connection(gateway: SandboxGateway, db: Database) -> None:
    provider = SandboxProvider(db)
    await gateway.add_fault(LIST, SandboxFault.REJECTED, times=1)

    assert await _raised(provider.gateway(await provider.add())) is None
    assert await _raised(gateway) is PermanentError


async def _raised(gateway: SandboxGateway) -> type[GatewayError] | None:
    try:
        await gateway.find_charge(uuid4(), 1)
    except GatewayError as error:
        return type(error)
    return None
