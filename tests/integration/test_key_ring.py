"""Opening the first account creates the key ring. While accounts exist, Fatura creates no other key ring."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from fatura import bootstrap, settings
from fatura.domain.credentials import Mode
from fatura.store.vault import KeyRingError, new_key
from fatura.usecases.accounts import api_keys, tag_key
from fatura.usecases.deps import Deps
from tests.support.databases import as_superuser
from tests.support.fatura_processes import environment, run_here
from tests.support.operator import OPERATOR, audited
from tests.support.populated import connected
from tests.support.postgres_processes import IS_ROOT


@pytest.fixture
def here(tmp_path: Path) -> settings.Settings:
    """Settings of a host with its own data folder."""
    return replace(settings.read({}), data_dir=tmp_path / "here")


async def test_a_ring_is_made_with_the_first_account_and_found_again(database_url, here) -> None:
    """[D-47]"""
    await bootstrap.open_account(here, database_url, name="First", mode=Mode.SANDBOX, opened_by=OPERATOR)
    path = here.data_dir / bootstrap.KEY_RING_FILE
    ring = path.read_text()

    await bootstrap.open_account(here, database_url, name="Second", mode=Mode.LIVE, opened_by=OPERATOR)

    assert path.read_text() == ring
    assert path.stat().st_mode & 0o077 == 0


async def test_only_one_of_several_starting_processes_opens_the_first_account(database_url, here) -> None:
    """[D-217, D-47]"""
    opened = await asyncio.gather(
        *(
            bootstrap.open_first_account(
                here, database_url, name="First", mode=Mode.SANDBOX, opened_by=OPERATOR
            )
            for _ in range(4)
        )
    )

    assert sum(each is not None for each in opened) == 1


async def test_no_ring_is_made_if_accounts_exist(database_url, here, tmp_path) -> None:
    """[D-47]"""
    await bootstrap.open_account(here, database_url, name="First", mode=Mode.SANDBOX, opened_by=OPERATOR)
    there = replace(here, data_dir=tmp_path / "there")

    with pytest.raises(KeyRingError, match="FATURA_SECRET_KEYS"):
        await bootstrap.open_account(
            there, database_url, name="Second", mode=Mode.SANDBOX, opened_by=OPERATOR
        )

    assert not there.data_dir.exists()


async def test_a_lost_tag_key_is_not_replaced(database_url, here, tmp_path) -> None:
    """With another tag key, no API key would work. An operator can restore the lost key from a backup. [D-240]"""
    first = await bootstrap.open_account(
        here, database_url, name="First", mode=Mode.SANDBOX, opened_by=OPERATOR
    )
    async with connected(as_superuser(database_url)) as connection:
        with pytest.raises(asyncpg.CheckViolationError, match="DELETE of tag_key is refused"):
            await connection.execute("DELETE FROM tag_key")
        kept = await connection.fetchrow("SELECT * FROM tag_key")
        await connection.execute("TRUNCATE tag_key")

        for place in (here, replace(here, data_dir=tmp_path / "there")):
            with pytest.raises(
                KeyRingError, match=r"tag_key has lost its row.*backup|copy the file secret_keys"
            ):
                await bootstrap.open_account(
                    place, database_url, name="Second", mode=Mode.LIVE, opened_by=OPERATOR
                )
        assert not (tmp_path / "there").exists()
        assert await connection.fetch("SELECT FROM tag_key") == []

        await connection.execute("INSERT INTO tag_key VALUES ($1, $2)", *kept)
    async with bootstrap.opened(here, database_url) as deps:
        caller = await api_keys.authenticate(deps, first.api_key, lambda _account: None)
    assert caller.account.account_id == first.account_id


async def test_another_ring_is_refused_at_the_start(database_url, here) -> None:
    """[D-47]"""
    await bootstrap.open_account(here, database_url, name="First", mode=Mode.SANDBOX, opened_by=OPERATOR)
    other = replace(here, secret_keys=("A" * 43 + "=",))

    with pytest.raises(KeyRingError, match="was sealed with key"):
        await bootstrap.open_account(
            other, database_url, name="Second", mode=Mode.SANDBOX, opened_by=OPERATOR
        )


async def test_rotation_seals_all_secrets_with_the_new_key(database_url, tmp_path) -> None:
    """[D-14, D-42, D-43, D-223]"""
    old, new = new_key(), new_key()
    read = replace(settings.read({}), secret_keys=(old,))
    first = await bootstrap.open_account(
        read, database_url, name="First", mode=Mode.SANDBOX, opened_by=OPERATOR
    )

    env = {**environment(database_url), "FATURA_SECRET_KEYS": f"{new},{old}"}
    ended = await asyncio.to_thread(run_here, "keys", "rotate", "--json", env=env)

    report = json.loads(ended.stdout)
    assert (ended.returncode, report["reencrypted"], report["unreadable"]) == (0, 3, 0)
    states = [(key["values"], key["state"]) for key in report["keys"]]
    assert states == [(3, "encrypts new values"), (0, "encrypts nothing")]
    assert old not in ended.stdout + ended.stderr
    again = await asyncio.to_thread(run_here, "keys", "rotate", "--json", env=env)
    assert json.loads(again.stdout)["reencrypted"] == 0
    assert await asyncio.to_thread(audited, database_url, first.account_id) == ["account.reencrypt"]
    await bootstrap.open_account(
        replace(read, secret_keys=(new,)), database_url, name="B", mode=Mode.LIVE, opened_by=OPERATOR
    )


async def test_api_keys_stay_valid_after_a_rotation(database_url) -> None:
    """[D-240, D-241]"""
    old, new = new_key(), new_key()
    read = replace(settings.read({}), secret_keys=(old,))
    opened = await bootstrap.open_account(
        read, database_url, name="First", mode=Mode.SANDBOX, opened_by=OPERATOR
    )
    async with bootstrap.opened(read, database_url) as deps:
        connection_id = await _connection_id(deps, opened.account_id)
    env = {**environment(database_url), "FATURA_SECRET_KEYS": f"{new},{old}"}
    assert (await asyncio.to_thread(run_here, "keys", "rotate", env=env)).returncode == 0

    async with bootstrap.opened(replace(read, secret_keys=(new,)), database_url) as deps:
        caller = await api_keys.authenticate(deps, opened.api_key, lambda _account: None)
        assert caller.account.account_id == opened.account_id
        assert deps.tagger.is_connection_id(connection_id, account_id=opened.account_id)


async def _connection_id(deps: Deps, account_id: UUID) -> UUID:
    async with deps.db.transaction(account_id) as tx:
        return await tx.fetchval("SELECT g.connection_id FROM gateway_connection g WHERE g.account_id = $1")


async def test_processes_that_start_together_share_one_tag_key(database_url) -> None:
    """[D-240]"""
    read = replace(settings.read({}), secret_keys=(new_key(),))

    async def api_key_tag() -> bytes:
        async with bootstrap.opened(read, database_url) as deps:
            return deps.tagger.api_key_tag(b"")

    assert len(set(await asyncio.gather(*(api_key_tag() for _ in range(4))))) == 1


async def test_a_key_that_is_missing_is_named(database_url) -> None:
    """[D-42]"""
    old, middle, new = new_key(), new_key(), new_key()
    read = replace(settings.read({}), secret_keys=(old,))
    await bootstrap.open_account(read, database_url, name="First", mode=Mode.SANDBOX, opened_by=OPERATOR)
    both = replace(read, secret_keys=(middle, old))
    await bootstrap.open_account(both, database_url, name="Second", mode=Mode.SANDBOX, opened_by=OPERATOR)
    async with bootstrap.opened(both, database_url) as deps:
        assert await tag_key.reencrypt(deps) == 1

    env = {**environment(database_url), "FATURA_SECRET_KEYS": f"{new},{middle}"}
    ended = await asyncio.to_thread(run_here, "keys", "rotate", "--json", env=env)

    report = json.loads(ended.stdout)
    assert (ended.returncode, report["reencrypted"], report["unreadable"]) == (1, 3, 2)
    assert report["keys"][-1]["state"] == "missing: add it to the end of the ring"


def test_a_ring_that_others_may_read_is_refused(database_url: str, tmp_path: Path) -> None:
    """[D-237]"""
    env = {**environment(database_url), "FATURA_SECRET_KEYS": "", "FATURA_DATA_DIR": str(tmp_path)}
    path = tmp_path / bootstrap.KEY_RING_FILE
    assert run_here("account", "create", "Gym", "--mode", "live", env=env).returncode == 0
    path.chmod(0o640)

    refused = run_here("check", env=env)

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.splitlines()[-1] == (
        f"fatura: other users of this host may open the key ring {path} (mode 0640): run `chmod 600 {path}`"
    )
    path.chmod(0o600)
    assert run_here("check", env=env).returncode == 0


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00", b"", b"c2hvcnQ="])
def test_an_unreadable_ring_is_reported_in_a_sentence(
    database_url: str, tmp_path: Path, content: bytes | None
) -> None:
    """[D-237]"""
    path = tmp_path / bootstrap.KEY_RING_FILE
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
        path.chmod(0o600)
    env = {**environment(database_url), "FATURA_SECRET_KEYS": "", "FATURA_DATA_DIR": str(tmp_path)}

    refused = run_here("check", env=env)

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.splitlines()[-1].startswith("fatura: ")
    assert "FATURA_SECRET_KEYS" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_an_empty_ring_of_a_database_with_secrets_is_not_replaced(database_url: str, tmp_path: Path) -> None:
    """[D-47]"""
    path = tmp_path / bootstrap.KEY_RING_FILE
    env = {**environment(database_url), "FATURA_SECRET_KEYS": "", "FATURA_DATA_DIR": str(tmp_path)}
    assert run_here("account", "create", "Gym", "--mode", "live", env=env).returncode == 0
    path.write_text("")

    refused = run_here("check", env=env)

    assert (refused.returncode, path.read_text()) == (1, "")
    assert "put the old keys back" in refused.stderr.splitlines()[-1]


@pytest.mark.parametrize("place", ["/proc/nothing", "/dev/null"], ids=["read-only", "not a folder"])
def test_a_key_ring_that_cannot_be_created_is_reported(database_url: str, place: str) -> None:
    """[D-237]"""
    env = {**environment(database_url), "FATURA_SECRET_KEYS": "", "FATURA_DATA_DIR": place}

    refused = run_here("account", "create", "Gym", "--mode", "live", env=env)

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.splitlines()[-1].startswith(f"fatura: the key ring {place}/secret_keys ")


@pytest.mark.skipif(not IS_ROOT, reason="only root can own a file of root")
def test_a_group_may_read_a_key_ring_of_root(database_url: str, tmp_path: Path, monkeypatch) -> None:
    """[D-237]"""
    path = tmp_path / bootstrap.KEY_RING_FILE
    path.write_text(new_key())
    env = {**environment(database_url), "FATURA_SECRET_KEYS": "", "FATURA_DATA_DIR": str(tmp_path)}
    monkeypatch.setattr("os.geteuid", lambda: 10001)

    path.chmod(0o440)
    assert run_here("account", "create", "Gym", "--mode", "live", env=env).returncode == 0
    for mode in (0o444, 0o460):
        path.chmod(mode)
        assert "other users of this host may open" in run_here("check", env=env).stderr
