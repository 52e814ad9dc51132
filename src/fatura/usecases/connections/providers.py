"""The payment providers that an account can connect (D-44, D-259)."""

from fatura.domain.account import Account
from fatura.gateways.provider import Providers
from fatura.usecases.deps import Deps
from fatura.views.providers import ProviderListView, ProviderView


def list_all(deps: Deps, account: Account) -> ProviderListView:
    """Return the providers by name, each with the fields of its connections."""
    return ProviderListView(
        data=[
            ProviderView.of(
                name,
                settings=provider.settings,
                credentials=provider.credentials,
                returns_money=provider.returns_money,
            )
            for name, provider in offered(deps, account).items()
        ]
    )


def offered(deps: Deps, account: Account) -> Providers:
    """Return the providers that accounts of this mode may use, sorted by name."""
    return {
        name: provider for name, provider in sorted(deps.providers.items()) if account.mode in provider.modes
    }
