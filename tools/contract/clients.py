"""Generate a client with each generator, compile it, and call a running engine with it."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from tools.contract.engine import Engine
from tools.contract.process import CLIENTS, DEV_BIN, DOCUMENT, HERE, TOOLS_PYTHON, empty, run

_JAVA_NOISE = (
    # printed for every OpenAPI 3.1 document
    "OpenAPI 3.1 support is still in beta",
    # printed for every document, even for a document with a single schema
    "Failed to get the schema name: null",
    # printed for every parameter `from`, although no model has this name
    "From (reserved word) cannot be used as model name",
)
_IMPORT_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
"""


def findings_of(name: str, engine: Engine) -> list[str]:
    """Generate a client, check it and call the engine with it. Return the output of the first step that failed."""
    return GENERATORS[name](empty(CLIENTS / name.replace(" ", "-")), engine)


def _java_python(folder: Path, engine: Engine) -> list[str]:
    # the generated client does not pass strict type checks, so only the calling program is checked
    return _generate_with_java(folder, "python", "--additional-properties=packageName=fatura_openapi") or (
        _check_python(folder, engine, package="fatura_openapi", checked=["fatura_openapi_call.py"])
    )


def _java_typescript(folder: Path, engine: Engine) -> list[str]:
    return _generate_with_java(folder, "typescript-fetch") or (
        _check_typescript(folder, engine, call="fetch_client_call")
    )


def _python_client(folder: Path, engine: Engine) -> list[str]:
    words = ["openapi-python-client", "generate", "--path", DOCUMENT, "--output-path", folder, "--overwrite"]
    code, output = run(words)
    warnings = [line for line in output.splitlines() if line and not line.startswith("Generating ")]
    return warnings or _unless_zero(code, output) or (
        _check_python(folder, engine, package="fatura_client", checked=["."])
    )  # fmt: skip


def _types(folder: Path, engine: Engine) -> list[str]:
    return _unless_zero(*run(["openapi-typescript", DOCUMENT, "-o", folder / "schema.d.ts"])) or (
        _check_typescript(folder, engine, call="typed_fetch_call")
    )


def _generate_with_java(folder: Path, *words: str) -> list[str]:
    code, output = run(["openapi-generator-cli", "generate", "-i", DOCUMENT, "-o", folder, "-g", *words])
    warnings = [
        line
        for line in output.splitlines()
        if ("WARN" in line or "ERROR" in line) and not any(noise in line for noise in _JAVA_NOISE)
    ]
    return warnings or _unless_zero(code, output)


def _check_python(folder: Path, engine: Engine, *, package: str, checked: list[str]) -> list[str]:
    """Import every module with warnings as errors, type-check the files in `checked`, and run the calling program."""
    call = f"{package}_call.py"
    shutil.copy(HERE / "calls" / call, folder)
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}', "utf-8")
    pyright = [DEV_BIN / "basedpyright", "--level", "error", "--pythonpath", TOOLS_PYTHON]
    return (
        _unless_zero(*run([TOOLS_PYTHON, "-W", "error", "-c", _IMPORT_ALL, package], cwd=folder))
        or _unless_zero(*run([*pyright, *checked], cwd=folder))
        or _unless_zero(*run([TOOLS_PYTHON, call, engine.url, engine.api_key], cwd=folder))
    )


def _check_typescript(folder: Path, engine: Engine, *, call: str) -> list[str]:
    """Compile the client and the calling program in strict mode, and run the program."""
    for name in (f"{call}.ts", "tsconfig.json"):
        shutil.copy(HERE / "calls" / name, folder)
    (folder / "package.json").write_text('{"type": "commonjs"}', "utf-8")
    return _unless_zero(*run(["tsc", "-p", "."], cwd=folder)) or _unless_zero(
        *run(["node", f"built/{call}.js", engine.url, engine.api_key], cwd=folder)
    )


def _unless_zero(code: int, output: str) -> list[str]:
    return (output.strip().splitlines() or [f"exit code {code}"]) if code else []


GENERATORS: Mapping[str, Callable[[Path, Engine], list[str]]] = {
    "openapi-generator-cli python": _java_python,
    "openapi-generator-cli typescript-fetch": _java_typescript,
    "openapi-python-client": _python_client,
    "openapi-typescript": _types,
}
"""The generators by name. The first word of each name is the npm or Python package."""
