"""Rotate the key ring while requests continue. No request may fail.

The ring is `[old]`, then `[old, new]`, then `[new, old]`. The first key of a ring encrypts. After all secrets are
encrypted again with the new key, the ring is `[new]`.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace

from fatura.domain.credentials import Mode
from fatura.store.vault import Vault, new_key
from fatura.usecases.accounts import key_ring
from tests.faults.report import Report
from tests.faults.secrets.swapped import enroll
from tests.support.operator import OPERATOR
from tests.support.world import World, api_client, open_account

REPEATED = 15
"""Number of requests that are sent with the first ring, and repeated with each later ring."""


async def rotate_under_load(world: World, report: Report) -> None:
    """Change the ring as a rolling restart does, in which old and new processes use different rings.

    Encrypt all secrets again while requests continue.
    """
    old, new = new_key(), new_key()
    rings = ([old], [old, new], [new, old], [new])
    async with _under(world, [Vault(ring) for ring in rings]) as worlds:
        made = [await _make(worlds[0], number) for number in range(REPEATED)]
        for pair in ((worlds[0], worlds[1]), (worlds[1], worlds[2])):
            again = await asyncio.gather(
                *[_make(each, number) for each in pair for number in range(REPEATED)]
            )
            report.problems += ["a repeat has another answer" for one in again if one not in made]
            await asyncio.gather(
                *[enroll(each, f"AR 20-000000{number}-1") for number, each in enumerate(pair, 10)]
            )
            await pair[1].run()
        reencrypted = await _seal_anew(worlds[2], made, report=report)
        report.count("secrets encrypted again during requests", reencrypted, at_least=2 * REPEATED)
        used = await key_ring.usage(worlds[3].deps, worlds[3].account_id)
        old_ones = sum(used.values()) - used[worlds[3].deps.vault.sealing_id]
        report.count("secrets still encrypted with the old key", old_ones, at_most=0)
        again = [await _make(worlds[3], number) for number in range(REPEATED)]
        report.count("repeats with another answer without the old key", int(again != made), at_most=0)
        await worlds[3].run()
        waiting = [each for each in await worlds[3].invoices() if each["status"] == "ready"]
        report.count("delayed invoices without the old key", len(waiting), at_most=0)


async def _seal_anew(world: World, made: Sequence[bytes], *, report: Report) -> int:
    """Re-encrypt two small batches of secrets and stop. Then re-encrypt the rest while requests continue.

    Return how many secrets were re-encrypted.
    """

    async def rotate(*, batches: int) -> int:
        reencrypted = 0
        async with aclosing(
            key_ring.reencrypt(world.deps, world.account_id, asked_by=OPERATOR, limit=4)
        ) as rotating:
            async for batch in rotating:
                reencrypted += batch.reencrypted
                report.problems += ["a secret does not open"] * batch.unreadable
                batches -= 1
                if not batches:
                    break
        return reencrypted

    async def use() -> None:
        for number, body in enumerate(made):
            if await _make(world, number) != body:
                report.problems.append("a repeat has another answer while secrets are sealed again")
            await enroll(world, f"AR 20-000001{number}-1")

    first = await rotate(batches=2)
    second, *_ = await asyncio.gather(rotate(batches=-1), use(), use())
    return first + second


async def _make(world: World, number: int) -> bytes:
    answer = await world.post("/v1/integration/api-keys", {"name": f"key {number}"}, key=f"made-{number}")
    return answer.body


@asynccontextmanager
async def _under(world: World, vaults: Sequence[Vault]) -> AsyncGenerator[list[World]]:
    """Yield one World per vault. Each World acts as a process with its own key ring. All have the same account."""
    async with AsyncExitStack() as stack:
        every = [replace(world.deps, vault=vault) for vault in vaults]
        opened = await open_account(every[0], Mode.SANDBOX)
        worlds: list[World] = []
        for deps in every:
            client = await stack.enter_async_context(api_client(deps))
            worlds.append(World(deps, client, opened, world.database_url))
        yield worlds
