"""Read the codes of the provider `pix_key` with pix-utils, a reader of Pix codes that shares no code with Fatura."""

import json
import random
import shutil
import string
from collections.abc import Sequence
from itertools import product
from typing import Any
from uuid import UUID

from fatura.domain import tax_document
from fatura.gateways.adapters.pix_key.adapter import MAX_CENTS, pix_code, txid_of
from fatura.gateways.adapters.pix_key.settings import MAX_CITY, MAX_EMAIL, MAX_NAME, parse
from tools.contract.process import BUILD, HERE, must_run

READER = "pix-utils"
CODES = 400
_SEED = 258
_EMAIL = string.ascii_lowercase + string.digits + ".!#$%&'*+/=?^_`{|}~-"
_PUBLISHED = {
    "00020126580014br.gov.bcb.pix0136123e4567-e12b-12d1-a456-4266554400005204000053039865802BR5913Fulano de Tal"
    "6008BRASILIA62070503***63041D3D": {
        "pixKey": "123e4567-e12b-12d1-a456-426655440000",
        "merchantName": "Fulano de Tal",
        "merchantCity": "BRASILIA",
        "txid": "***",
    },
    "00020101021226700014br.gov.bcb.pix2548pix.example.com/8b3da2f39a4140d1a91abd93113bd4415204000053039865802BR"
    "5913Fulano de Tal6008BRASILIA62070503***630464E4": {
        "url": "pix.example.com/8b3da2f39a4140d1a91abd93113bd441",
        "merchantName": "Fulano de Tal",
        "merchantCity": "BRASILIA",
    },
}
"""Examples of the Central Bank, and what the reader must find in them."""


def findings() -> list[str]:
    """Return the codes that the reader refuses, or in which it finds something else than Fatura has written.

    The reader is checked too: it must read published codes, and refuse codes with one wrong character.
    """
    chance = random.Random(_SEED)  # noqa: S311 - the same codes in each run
    wanted = dict(_made(chance) for _ in range(CODES))
    damaged = [_damaged(chance, code) for code in wanted]
    wanted.update(_PUBLISHED)
    read = _read([*wanted, *damaged])
    wrong = [
        f"{code} was read as {found}, not as {fields}"
        for (code, fields), found in zip(wanted.items(), read, strict=False)
        if found is None or any(found.get(name) != value for name, value in fields.items())
    ]
    accepted = [
        f"{code} is damaged, but was read as {found}"
        for code, found in zip(damaged, read[len(wanted) :], strict=True)
        if found is not None
    ]
    return wrong + accepted


def _read(codes: Sequence[str]) -> list[dict[str, Any] | None]:
    script, given = BUILD / "read_pix_codes.cjs", BUILD / "pix_codes.json"
    shutil.copy(HERE / "calls" / script.name, script)
    given.write_text(json.dumps(codes), "utf-8")
    return json.loads(must_run(["node", script, given]))


def _made(chance: random.Random) -> tuple[str, dict[str, str]]:
    """Return a code of the provider, and the values in it."""
    key = chance.choice([_cpf, _cnpj, _email, _phone, _random_key])(chance)
    settings = {
        "pixKey": key,
        "merchantName": _text(chance, MAX_NAME),
        "merchantCity": _text(chance, MAX_CITY),
    }
    amount_cents = chance.choice(
        [1, 10, 99, 100, MAX_CENTS, chance.randint(1, 10 ** chance.randint(2, 12) - 1)]
    )
    txid = txid_of(UUID(int=chance.getrandbits(128)), attempt=chance.randint(1, 9))
    read = parse(settings, {})
    fields = {
        "type": "STATIC",
        "pixKey": key,
        "merchantName": read.merchant_name,
        "merchantCity": read.merchant_city,
        "transactionAmount": f"{amount_cents // 100}.{amount_cents % 100:02}",
        "transactionCurrency": "986",
        "countryCode": "BR",
        "txid": txid,
    }
    return pix_code(read, amount_cents=amount_cents, txid=txid), fields


def _damaged(chance: random.Random, code: str) -> str:
    """Return the code with one wrong character."""
    place = chance.randrange(len(code))
    other = chance.choice([each for each in string.digits + string.ascii_uppercase if each != code[place]])
    return code[:place] + other + code[place + 1 :]


def _text(chance: random.Random, most: int) -> str:
    letters = string.ascii_letters + string.digits + "ÁÃçéÍóÔü" + " .,&'/-()"
    return chance.choice(string.ascii_letters) + "".join(chance.choices(letters, k=chance.randrange(most)))


def _cpf(chance: random.Random) -> str:
    return _document("".join(chance.choices(string.digits, k=9)))


def _cnpj(chance: random.Random) -> str:
    return _document("".join(chance.choices(string.digits + string.ascii_uppercase, k=12)))


def _document(start: str) -> str:
    """Return the document with valid check digits that begins with `start`."""
    found = (start + "".join(digits) for digits in product(string.digits, repeat=2))
    return next(each for each in found if tax_document.refusal(each) is None)


def _email(chance: random.Random) -> str:
    name = chance.choices(_EMAIL, k=chance.randint(1, MAX_EMAIL - len("@example.com")))
    return f"{''.join(name)}@example.com"


def _phone(chance: random.Random) -> str:
    return f"+55{chance.randint(11, 99)}9{chance.randint(10**7, 10**8 - 1)}"


def _random_key(chance: random.Random) -> str:
    return str(UUID(int=chance.getrandbits(128)))
