"""Faults that a merchant queues in the sandbox make the next calls fail with the matching errors (D-46, D-61)."""

import asyncio
from uuid import UUID, uuid4

import pytest

from fatura.domain.payments import EntryKind
from fatura.domain.sandbox import MoveDetails, SandboxFault, SandboxMove, SandboxOperation
from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.adapters.sandbox.rules import as_charge
from fatura.gateways.port import (
    AuthFailedError,
    GatewayError,
    NotFoundError,
    PermanentError,
    ProductMirror,
    TransientError,
    UnknownOutcomeError,
)
from fatura.store.db import Database, connect
from tests.contract.provider import NOW, charge_request, charges_listed, refund_request
from tests.contract.sandbox_provider import SandboxProvider

CREATE, GET = SandboxOperation.CREATE_CHARGE, SandboxOperation.GET_CHARGE
CANCEL, REFUND = SandboxOperation.CANCEL_CHARGE, SandboxOperation.REFUND_CHARGE
LIST, PRODUCT = SandboxOperation.LIST_CHARGES, SandboxOperation.CREATE_PRODUCT
ALL, HANG = SandboxOperation.ALL, SandboxFault.HANG
OPERATIONS = (CREATE, GET, CANCEL, REFUND, LIST, PRODUCT)


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
        case SandboxOperation.REFUND_CHARGE:
            paid = await gateway.move_charge(charge_id, SandboxMove.PAY, details=MoveDetails(amount_cents=1))
            return await gateway.refund_charge(refund_request(as_charge(paid), 1))
        case SandboxOperation.LIST_CHARGES:
            return await gateway.find_charges(uuid4(), 1)
        case SandboxOperation.CREATE_PRODUCT:
            return await gateway.mirror_product(ProductMirror(product_id, "Gold", None))
        case _:
            raise AssertionError(operation)


@pytest.mark.parametrize("for_all", [False, True])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    ("fault", "writing", "reading", "was_done"),
    [
        (SandboxFault.TIMEOUT_BEFORE, UnknownOutcomeError, TransientError, False),
        (SandboxFault.TIMEOUT_AFTER, UnknownOutcomeError, TransientError, True),
        (SandboxFault.SERVER_ERROR, UnknownOutcomeError, TransientError, False),
        (SandboxFault.RATE_LIMITED, TransientError, TransientError, False),
        (SandboxFault.REJECTED, PermanentError, PermanentError, False),
        (SandboxFault.UNAUTHORIZED, AuthFailedError, AuthFailedError, False),
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
    for_all: bool,
) -> None:
    """[D-46, D-61 faults]"""
    charge_id, product_id = (await gateway.create_charge(charge_request())).charge_id, uuid4()
    await gateway.add_fault(ALL if for_all else operation, fault, times=2)

    for _ in range(2):
        with pytest.raises(GatewayError) as met:
            await run(gateway, operation, charge_id, product_id)
        assert type(met.value) is (writing if operation in {CREATE, CANCEL, REFUND, PRODUCT} else reading)

    *_, first = await gateway.charges(None)
    assert (first.status == "canceled") is (was_done and operation is CANCEL)
    assert first.cents_of(EntryKind.REFUND) == 2 * (was_done and operation is REFUND)
    assert len(await gateway.charges(None)) == 1 + 2 * (was_done and operation is CREATE)
    assert len(await gateway.products()) == (was_done and operation is PRODUCT)
    for every in OPERATIONS:
        await run(gateway, every, charge_id, product_id)


@pytest.mark.parametrize(
    ("operation", "error"),
    [(CREATE, PermanentError), (GET, NotFoundError), (CANCEL, NotFoundError), (PRODUCT, PermanentError)],
)
async def test_a_gateway_that_knows_no_charge_says_so(
    gateway: SandboxGateway, operation: SandboxOperation, error: type[GatewayError]
) -> None:
    """[D-61 faults]"""
    charge_id = (await gateway.create_charge(charge_request())).charge_id
    await gateway.add_fault(ALL, SandboxFault.UNKNOWN, times=1)

    with pytest.raises(error):
        await run(gateway, operation, charge_id, uuid4())

    (charge,) = await gateway.charges(None)
    assert charge.status == "open"
    assert await gateway.products() == []


async def test_a_look_up_at_a_gateway_that_knows_no_charge_is_empty(gateway: SandboxGateway) -> None:
    """[D-61 faults]"""
    created = await gateway.create_charge(charge_request())
    await gateway.add_fault(LIST, SandboxFault.UNKNOWN, times=3)

    assert await gateway.find_charges(created.invoice_id, 1) == []
    assert await gateway.find_charges(created.invoice_id, 1) == []
    assert await charges_listed(gateway, NOW) == []
    assert await charges_listed(gateway, NOW) == [created]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (SandboxFault.UNAUTHORIZED, AuthFailedError),
        (SandboxFault.REJECTED, AuthFailedError),
        (SandboxFault.UNKNOWN, AuthFailedError),
        (SandboxFault.SERVER_ERROR, TransientError),
        (SandboxFault.TIMEOUT_AFTER, TransientError),
    ],
)
async def test_faults_of_all_operations_affect_the_check_of_the_credentials(
    gateway: SandboxGateway, fault: SandboxFault, error: type[GatewayError]
) -> None:
    """[D-61 faults]"""
    await gateway.add_fault(LIST, fault, times=1)
    await gateway.check_credentials()
    await gateway.add_fault(ALL, fault, times=1)

    with pytest.raises(error):
        await gateway.check_credentials()

    await gateway.check_credentials()


async def test_a_call_that_hangs_holds_no_connection_and_ends_when_it_is_canceled(database_url: str) -> None:
    """[D-61 faults]"""
    database = await connect(database_url, max_connections=4)
    provider = SandboxProvider(database)
    gateway = provider.gateway(await provider.add(productCatalog=True))
    charge_id = (await gateway.create_charge(charge_request())).charge_id
    await gateway.add_fault(ALL, HANG, times=5 * len(OPERATIONS))

    hanging = [
        asyncio.create_task(run(gateway, operation, charge_id, uuid4())) for operation in 5 * OPERATIONS
    ]
    ended, _ = await asyncio.wait(hanging, timeout=1)
    assert ended == set()
    assert len(await gateway.charges(None)) == 1
    assert (await gateway.get_charge(charge_id)).charge_id == charge_id, "no fault is left"
    assert database._pool.get_idle_size() == database._pool.get_size()

    for each in hanging:
        each.cancel()
    ended, _ = await asyncio.wait(hanging, timeout=1)
    assert ended == set(hanging)
    assert all(each.cancelled() for each in hanging)
    assert [charge.status for charge in await gateway.charges(None)] == ["open"]
    assert await gateway.products() == []
    await database.close()


async def test_a_fault_with_seconds_affects_every_call_until_they_have_passed(
    gateway: SandboxGateway,
) -> None:
    """[D-61 faults, D-67 faults]"""
    await gateway.add_fault(LIST, SandboxFault.RATE_LIMITED, seconds=2)
    ends = asyncio.get_running_loop().time() + 2

    assert [await _raised(gateway) for _ in range(20)] == 20 * [TransientError]
    await asyncio.sleep(ends - asyncio.get_running_loop().time() + 0.1)

    assert await _raised(gateway) is None


async def test_faults_are_ended(gateway: SandboxGateway, db: Database) -> None:
    """`end_faults` ends only the faults of its own connection. Faults that are queued later have an effect.

    [D-61 faults]
    """
    provider = SandboxProvider(db)
    other = provider.gateway(await provider.add(account_id=gateway._config.account_id))
    for each in (gateway, other):
        await each.add_fault(LIST, SandboxFault.REJECTED, times=1000)
        await each.add_fault(ALL, SandboxFault.UNAUTHORIZED, seconds=86_400)

    await gateway.end_faults()

    assert await _raised(gateway) is None
    assert await _raised(other) is PermanentError
    await gateway.add_fault(ALL, SandboxFault.UNAUTHORIZED, times=1)
    assert await _raised(gateway) is AuthFailedError


async def test_faults_take_effect_in_the_order_they_were_queued(gateway: SandboxGateway) -> None:
    queued = [SandboxFault.REJECTED, SandboxFault.RATE_LIMITED] * 3
    for fault in queued:
        await gateway.add_fault(LIST, fault, times=2)

    met = [await _raised(gateway) for _ in range(13)]

    rejected, limited = [PermanentError] * 2, [TransientError] * 2
    assert met == [*(rejected + limited) * 3, None]


async def test_the_oldest_of_the_faults_of_an_operation_and_of_all_is_used_first(
    gateway: SandboxGateway,
) -> None:
    """[D-61 faults]"""
    await gateway.add_fault(ALL, SandboxFault.REJECTED, times=1)
    await gateway.add_fault(LIST, SandboxFault.RATE_LIMITED, times=1)
    await gateway.add_fault(CREATE, SandboxFault.UNKNOWN, times=1)
    await gateway.add_fault(ALL, SandboxFault.UNAUTHORIZED, times=1)

    assert [await _raised(gateway) for _ in range(4)] == [
        PermanentError,
        TransientError,
        AuthFailedError,
        None,
    ]


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
        await gateway.find_charges(uuid4(), 1)
    except GatewayError as error:
        return type(error)
    return None
