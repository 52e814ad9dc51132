"""The options of commands that call the API are checked before a request is sent (D-259)."""

import pytest
import typer

from fatura.cli.api_options import checked_api, checked_key


@pytest.mark.parametrize(
    ("url", "accepted"),
    [
        ("https://billing.example.com/", "https://billing.example.com"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("http://localhost:8000", "http://localhost:8000"),
    ],
)
def test_the_url_of_an_api_is_accepted(url: str, accepted: str) -> None:
    """[D-259]"""
    assert checked_api(url) == accepted


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "ftp://127.0.0.1",
        "http://",
        "http://127.0.0.1:99999",
        "http://127.0.0.1/v1",
        "http://127.0.0.1?pw",
        "http://127.0.0.1#pw",
        "http://user:pw@127.0.0.1",
        "http://127.0.0.1/\x1b[2J",
        "http://host\x1b[2J",
    ],
)
def test_another_url_is_refused(url: str) -> None:
    """The error does not repeat the URL, which may contain a password. [D-259]"""
    with pytest.raises(typer.BadParameter, match="must be the API's URL") as refused:
        checked_api(url)
    assert "pw" not in str(refused.value)


@pytest.mark.parametrize(
    "host", ["billing.example.com", "192.0.2.1", "localhost.example.com", "[2001:db8::1]"]
)
def test_a_key_is_not_sent_unencrypted_to_another_host(host: str) -> None:
    """[D-259]"""
    with pytest.raises(typer.BadParameter, match="must begin with https://"):
        checked_api(f"http://{host}")


@pytest.mark.parametrize(
    "key", ["", "fk_SECRET\r", "fk_SECRET\n x: y", "fk_SECRETé", "fk SECRET", "fk_SECRET\u2028"]
)
def test_a_malformed_key_is_refused(key: str) -> None:
    """[D-259]"""
    with pytest.raises(typer.BadParameter, match="must be an API key") as refused:
        checked_key(key)
    assert "SECRET" not in str(refused.value)
