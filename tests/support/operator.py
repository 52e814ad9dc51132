"""The actor in audit entries of commands.

If a test calls the use case itself, the actor is OPERATOR. If a test runs a command, the actor is the operating system
user who runs the tests.
"""

import os
import pwd
from uuid import UUID

from fatura.domain.audit import Actor, ActorKind
from tests.support.postgres_processes import value

OPERATOR = Actor(ActorKind.OPERATOR, "tests")


def audited(database_url: str, account_id: UUID | str) -> list[str]:
    """Return the actions in the account's audit log whose actor is the user who runs the tests."""
    name = pwd.getpwuid(os.geteuid()).pw_name
    entries = f"""
        SELECT array_agg(action ORDER BY sequence) FROM audit_entry
        WHERE actor_kind = 'operator' AND actor_name = '{name}'
    """  # noqa: S608 - the name of our own user
    return value(database_url, entries, server_settings={"app.account": str(account_id)}) or []
