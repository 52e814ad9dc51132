"""Invariants of the audit log."""

from fatura.store.invariants.invariant import Invariant

# The oldest entries may have been deleted, so the numbers need not begin at 1.
AUDIT: tuple[Invariant, ...] = (
    Invariant(
        "audit_numbers_without_gaps",
        "the numbers of audit entries have no gaps, and the highest one equals the counter",
        """
        SELECT c.account_id AS offender
        FROM account_counter c
        WHERE c.account_id = $1 AND (
            SELECT count(*) > 0 AND (max(a.sequence), max(a.sequence) - min(a.sequence) + 1)
                IS DISTINCT FROM (c.last_audit_sequence, count(*))
            FROM audit_entry a WHERE a.account_id = $1
        )
        """,
    ),
    Invariant(
        "audit_times_follow_numbers",
        "no audit entry is older than an entry with a lower number, or newer than the counter says",
        """
        SELECT n.audit_entry_id AS offender
        FROM (
            SELECT a.audit_entry_id, a.created_at, lag(a.created_at) OVER (ORDER BY a.sequence) AS before
            FROM audit_entry a WHERE a.account_id = $1
        ) n
        CROSS JOIN account_counter c
        WHERE c.account_id = $1 AND (n.created_at < n.before OR n.created_at > c.last_audited_at)
        """,
    ),
    Invariant(
        "audited_keys_exist",
        "the API key of every audit entry exists in the account, or was one of more than 1,000 keys",
        """
        SELECT a.audit_entry_id AS offender
        FROM audit_entry a
        WHERE a.account_id = $1 AND a.actor_kind = 'api_key' AND NOT EXISTS (
            SELECT FROM api_key k WHERE k.account_id = $1 AND k.api_key_id = a.actor_id
        ) AND (SELECT count(*) FROM api_key k WHERE k.account_id = $1) < 1000
        """,
    ),
)
