"""Show the accounts that a command over all accounts had to pass over (D-216)."""

from collections.abc import Sequence

from fatura.cli.output import echo
from fatura.usecases.operations.each_account import FailedAccount


def failed_as_json(failed: Sequence[FailedAccount]) -> list[dict[str, str]]:
    return [{"accountId": str(each.account_id), "why": each.why} for each in failed]


def print_failed(failed: Sequence[FailedAccount], what: str) -> None:
    """Print a line to stderr for each account. `what` completes "account ...", for example "was not checked"."""
    for each in failed:
        echo(f"account {each.account_id} {what}: {each.why}", err=True)
