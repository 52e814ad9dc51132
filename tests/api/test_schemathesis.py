"""Schemathesis tests every operation in `/docs-json` on a real API with a worker.

For each failed request, the output contains a curl command that repeats the request. To send more requests,
run `SCHEMATHESIS_EXAMPLES=200 SCHEMATHESIS_SEED=1 .venv/bin/pytest -m contract tests/api`.
"""

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
import pytest_asyncio

from fatura.reference import openapi_document
from tests.conftest import fresh_database
from tests.support.filled_account import Engine, FilledAccount, running_engine
from tests.support.world import Json

ST = str(Path(sys.executable).with_name("st"))
CONFIGURATION = Path(__file__).with_name("schemathesis.toml")
EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "10"))
"""Maximum number of generated requests per operation in the fuzzing phase."""
SEED = os.environ.get("SCHEMATHESIS_SEED", "20331120")
RUN_SECONDS = 300
"""Time limit of one run of Schemathesis. It is long enough for a busy machine."""
pytestmark = pytest.mark.timeout(RUN_SECONDS + 60)
ROOT = Path(__file__).parents[2]
GROUPS = (
    ("Products", "Customers", "Health", "Audit"),
    ("Plans", "Subscriptions"),
    ("Invoices", "Events", "Webhooks", "Gateways"),
    ("Integration", "Connections", "Sandbox", "Pay page"),
)
"""Groups of tags of the OpenAPI document. The operations of one group are tested on one account."""
CHAINS = (
    ("Products", "Plans", "Subscriptions", "Customers"),
    ("Invoices", "Sandbox", "Events", "Integration", "Connections", "Gateways", "Webhooks"),
)
"""Groups of tags whose operations are connected by links. Schemathesis follows randomly chosen links."""
OPERATIONS: defaultdict[str, set[str]] = defaultdict(set)
for _path in openapi_document()["paths"].values():
    for _operation in _path.values():
        OPERATIONS[_operation["tags"][0]].add(_operation["operationId"])
SUCCESS = {"200", "201", "202", "204"}
UNANSWERED = {
    "receive_gateway_webhook": "needs the signature of a provider",
    "list_charge_calls": "gets the `chargeId` of the routes of the sandbox, which is another id",
}
"""Operations that never succeed in this test, with the reason."""


def configuration(filled: FilledAccount) -> str:
    """Return a configuration that makes Schemathesis send an existing id in nine of ten cases."""
    dictionaries = [f"[dictionaries.{name}]\nvalues = {ids}" for name, ids in filled.resources.ids.items()]
    places = [
        f'"{place}" = {{ dictionary = "{name}", probability = 0.9 }}'
        for name in filled.resources.ids
        for place in (f"path.{name}", f"query.{name}", f"body.{name}", f"body.items[*].{name}")
    ]
    return "\n".join((CONFIGURATION.read_text(), *dictionaries, "[parameters]", *places))


def fixed_header(name: str, api_key: str) -> Json:
    """Return an entry of `accounts.json`, from which Schemathesis reads the accounts' API keys."""
    return {"name": name, "fixedHeaders": [{"name": "Authorization", "value": f"Bearer {api_key}"}]}


def schemathesis(
    filled: FilledAccount, folder: Path, tags: Sequence[str], phases: str, *, examples: int
) -> dict[str, Counter[str]]:
    """Run Schemathesis, which must find no error. Return the number of responses by operation and status."""
    file, answers, accounts = (folder / name for name in ("schemathesis.toml", "answers", "accounts.json"))
    file.write_text(configuration(filled))
    keys = {"owner": filled.api_key, "stranger": filled.stranger_key}
    accounts.write_text(json.dumps({"auth": [fixed_header(*each) for each in keys.items()]}))
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "FILLED": json.dumps({**asdict(filled), "answers": str(answers)}),
        "FILLED_ACCOUNTS": str(accounts),
    }
    command = [ST, "--config-file", str(file), "run", f"{filled.url}/docs-json", "--no-color"]
    command += ["--checks", "all", "--phases", phases, "--max-examples", str(examples), "--seed", SEED]
    command += [word for tag in tags for word in ("--include-tag", tag)]
    ended = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=RUN_SECONDS
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert filled.works(), "the API key was revoked during the run"
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for line in answers.read_text().splitlines():
        operation, status = line.split()
        found[operation][status] += 1
    return found


def failing(answered: dict[str, Counter[str]], tags: Sequence[str]) -> dict[str, Counter[str]]:
    """Return the operations of `tags` that never succeeded, each with the number of its responses by status.

    Operations in UNANSWERED are left out.
    """
    operations = {operation for tag in tags for operation in OPERATIONS[tag]} - UNANSWERED.keys()
    return {each: answered[each] for each in sorted(operations) if answered[each].keys().isdisjoint(SUCCESS)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(server_url: str, tmp_path_factory) -> AsyncIterator[Engine]:
    """An engine shared by the tests of this module. Each test has its own account."""
    async with fresh_database(server_url) as url:
        with running_engine(url, tmp_path_factory.mktemp("engine")) as running:
            yield running


def test_every_tag_is_tested():
    """[spec 4.6 GET /docs-json kept]"""
    assert sorted(tag for group in GROUPS for tag in group) == sorted(OPERATIONS)


@pytest.mark.contract
@pytest.mark.parametrize("tags", GROUPS, ids="-".join)
def test_operations_answer_as_documented(engine: Engine, tmp_path, tags):
    """[spec 4.6 GET /docs-json kept, spec 7 400, spec 7 401, spec 7 404, D-8, D-10, D-11, D-12, D-13]"""
    answered = schemathesis(
        engine.filled_account(), tmp_path, tags, "examples,coverage,fuzzing", examples=EXAMPLES
    )
    operations = sum(len(OPERATIONS[tag]) for tag in tags)
    assert 4 * len(failing(answered, tags)) <= operations, "too few valid requests were sent"


@pytest.mark.contract
@pytest.mark.parametrize("tags", CHAINS, ids="-".join)
def test_chains_of_links_answer_as_documented(engine: Engine, tmp_path, tags):
    """[spec 4.6 GET /docs-json links]"""
    answered = schemathesis(engine.filled_account(), tmp_path, tags, "stateful", examples=10 * EXAMPLES)
    assert 3 * len(failing(answered, tags)) < 2 * len(answered), "too few links were followed"
