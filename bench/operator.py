"""The actor that opens the accounts of measurements, for the audit log."""

from fatura.domain.audit import Actor, ActorKind

OPERATOR = Actor(ActorKind.OPERATOR, "bench")
