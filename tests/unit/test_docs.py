"""The API documentation is complete and loads nothing from the internet. [spec 4.6 GET /docs 200]"""

import re
from base64 import b64encode
from hashlib import sha256

import pytest

from fatura.api.app import create_app
from fatura.domain.errors import CATALOGUE
from tests.unit.tiny_api import client_of, tiny_api


@pytest.fixture(scope="module")
def document():
    return create_app().openapi()


async def test_only_the_inline_script_with_the_allowed_hash_runs():
    async with client_of(tiny_api(), None) as client:
        page = await client.get("/docs")
        (script,) = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
        digest = b64encode(sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in page.headers["content-security-policy"]
        assert '"validatorUrl": null' in script


@pytest.mark.parametrize("wanted", ["bytes=9-1", "bytes=99999999-", "lines=1-2", "x", "bytes=" + "0-1," * 9])
async def test_the_files_of_the_page_are_sent_whole(wanted):
    """The API ignores the header Range. If it did not, an invalid Range would get an error in plain text.
    [spec 7 problem+json]
    """
    async with client_of(tiny_api(), None) as client:
        style = await client.get("/docs/assets/swagger-ui.css", headers={"Range": wanted})
        assert (style.status_code, style.headers["content-type"]) == (200, "text/css; charset=utf-8")
        assert len(style.content) == int(style.headers["content-length"])


@pytest.mark.parametrize("path", ["", "x", "../docs.py", "../" * 9000, "swagger-ui.css/", "%2e%2e/docs.py"])
async def test_other_paths_of_the_page_are_404(path):
    """[spec 7 problem+json]"""
    async with client_of(tiny_api(), None) as client:
        missing = await client.get(f"/docs/assets/{path}")
        assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")


def operations(document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_every_operation_lists_its_problems(document):
    """[D-12]"""
    known = {problem.type: problem.status for problem in CATALOGUE}
    for place, operation in operations(document):
        if place.startswith("GET /health"):
            continue
        problems = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
        assert {"429", "500", "503"} <= set(problems), place
        assert ("404" in problems) >= ("{" in place), place
        for status, answer in problems.items():
            content = answer["content"]["application/problem+json"]
            assert content["schema"] == {"$ref": "#/components/schemas/Problem"}, place
            assert {known[type_] for type_ in content["examples"]} == {int(status)}, place
        keyless = place.startswith("POST /gateways/")
        assert ("401" in problems, operation["security"]) == (
            not keyless,
            [] if keyless else [{"ApiKey": []}],
        ), place
        assert operation["description"], place


def test_every_input_schema_has_limits(document):
    schemas = document["components"]["schemas"]
    assert not {"HTTPValidationError", "ValidationError"} & set(schemas)
    for name, schema in schemas.items():
        for field, of in (
            schema.get("properties", {}).items() if name.endswith(("Form", "Patch", "Pricing")) else ()
        ):
            for kind in of.get("anyOf", [of]):
                place = f"{name}.{field}"
                if kind.get("type") == "integer":
                    assert {"minimum", "maximum"} <= set(kind) or "enum" in kind, place
                if kind.get("type") == "string":
                    assert {"maxLength", "format", "const", "enum"} & set(kind), place
                if kind.get("type") == "array":
                    assert "maxItems" in kind, place
                assert kind.get("title") is None, place
