"""Quotas: how many products, plans and plan items an account may store. No client can delete such rows (D-245)."""

from collections.abc import Mapping
from enum import StrEnum

from fatura.domain.errors import QUOTA_EXCEEDED, EngineError


class Quota(StrEnum):
    """What a quota limits. The values are also names of stored totals of the account (`store.counters.COLUMNS`)."""

    PRODUCTS = "products"
    PLANS = "plans"
    PLAN_ITEMS = "plan_items"


_MEANING: Mapping[Quota, str] = {
    Quota.PRODUCTS: "products, archived ones included; change a product instead of creating another",
    Quota.PLANS: "plans, archived ones included; publish a version of a plan instead of creating another",
    Quota.PLAN_ITEMS: "items in all versions of its plans and in private terms of subscriptions; publish and customize "
    "less often",
}


def setting(quota: Quota) -> str:
    """Return the name of the setting that changes the quota."""
    return f"FATURA_QUOTA_{quota.upper()}"


def check(limits: Mapping[str, int], *, added: Mapping[str, int], stored: Mapping[str, int]) -> None:
    """Refuse a transaction that adds rows beyond a quota.

    `added` has the number of new rows for each quota. `stored` has the account's totals, which include the new rows.
    Raises EngineError: `engine.quota_exceeded`.
    """
    for quota in Quota:
        limit = limits[quota]
        if added.get(quota, 0) > 0 and stored[quota] > limit:
            raise EngineError(
                QUOTA_EXCEEDED,
                f"An account stores at most {limit} {_MEANING[quota]}. Whoever runs Fatura can raise the limit with "
                f"{setting(quota)}.",
                meta={"quota": quota, "limit": limit},
            )
