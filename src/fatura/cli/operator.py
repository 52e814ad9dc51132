"""The person who runs a command, for the audit log (D-223)."""

import os
import pwd

from fatura.domain.audit import Actor, ActorKind


def operator() -> Actor:
    """Return the operating system's user, or its number if it has no name, which is common in containers."""
    uid = os.geteuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return Actor(ActorKind.OPERATOR, name)
