"""The person who runs a command, for the audit log (D-223)."""

import os
import pwd

from fatura.domain.audit import Actor, ActorKind


def operator() -> Actor:
    """Return the operating system's user by name. In a container, the user often has no name; then use its number."""
    uid = os.geteuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return Actor(ActorKind.OPERATOR, name)
