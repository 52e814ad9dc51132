"""`fatura migrate` connects as the owner of the tables, and the other commands as the engine's role."""

import pytest

from fatura import settings
from fatura.cli.options import announce


@pytest.mark.parametrize(("as_owner", "role"), [(True, "fatura"), (False, "fatura_app")])
def test_a_command_names_the_role_that_it_uses(
    *, as_owner: bool, role: str, capsys: pytest.CaptureFixture[str]
):
    """[D-237]"""
    found = settings.read(
        {
            "FATURA_DATABASE_URL": "postgresql://fatura_app:secret@db.internal/fatura",
            "FATURA_OWNER_URL": "postgresql://fatura:secret@db.internal/fatura",
        }
    )
    announce(found, as_owner=as_owner)
    assert capsys.readouterr().err.startswith(f"fatura: database fatura at db.internal as {role}; key ring: ")
