"""The actor that the audit log names for accounts that measurements open."""

from fatura.domain.audit import Actor, ActorKind

OPERATOR = Actor(ActorKind.OPERATOR, "bench")
