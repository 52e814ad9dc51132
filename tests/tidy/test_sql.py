"""House rules on SQL: statements are literals, and only certain packages have any.

Each statement reads or writes rows of one account, except discovery statements.
"""

import ast as python
from collections.abc import Iterator

import pytest
from pglast import parse_sql

from tests.tidy import sql_rules
from tests.tidy.sources import Finding, Source, none, repository
from tests.tidy.sql_statements import NotSqlError, Statement, concatenated, literals, statements

PACKAGES = ("src/fatura/store/", "src/fatura/gateways/adapters/")


def broken(statement: Statement) -> Iterator[Finding]:
    """Yield a finding for each rule that a statement violates."""
    own = sql_rules.discovery_reads if statement.discovers else sql_rules.on_own_account
    for rule in (own, *sql_rules.ALWAYS):
        for message in rule(statement.tree):
            yield Finding(statement.path, statement.line, message)


def misplaced(source: Source) -> Iterator[Finding]:
    """Refuse SQL outside the packages that may contain it."""
    if not source.path.startswith(PACKAGES):
        for line, _, _ in literals(source):
            yield Finding(source.path, line, f"SQL belongs into {' and '.join(PACKAGES)}")


def concatenated_sql(source: Source) -> Iterator[Finding]:
    """Refuse SQL that is built from parts."""
    for line in concatenated(source):
        yield Finding(
            source.path, line, "SQL is put together from pieces: write it out, pass what varies as $n"
        )


def test_sql_is_literal_and_in_its_packages():
    sources = repository(".py", under="src/")
    assert none(
        finding for source in sources for rule in (misplaced, concatenated_sql) for finding in rule(source)
    )


def test_every_statement_stays_within_its_account():
    found = [each for source in repository(".py", under=PACKAGES[0]) for each in statements(source)]
    found += [each for source in repository(".py", under=PACKAGES[1]) for each in statements(source)]
    assert len(found) > 50, "the statements were not found"
    assert none(finding for each in found for finding in broken(each))


OWN, DETERMINISTIC, PLAIN = sql_rules.on_own_account, sql_rules.deterministic, sql_rules.plain_conflict
NEW = "INSERT INTO t (account_id, n) VALUES ($1, 1)"


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (OWN, "SELECT t.n FROM t"),
        (OWN, "SELECT t.n FROM t WHERE t.account_id = $2"),
        (OWN, "SELECT t.n FROM t WHERE t.account_id = $1 OR t.n IS NULL"),
        (OWN, "SELECT 1 FROM t JOIN i ON i.account_id = t.account_id WHERE t.account_id = $1"),
        (OWN, "SELECT 1 FROM t, i WHERE account_id = $1"),
        (OWN, "SELECT 1 FROM t WHERE t.account_id = $1 AND EXISTS (SELECT FROM i WHERE i.n = t.n)"),
        (OWN, "SELECT (SELECT count(*) FROM i WHERE i.n = t.n) FROM t WHERE t.account_id = $1"),
        (OWN, "WITH x AS (SELECT * FROM t) SELECT * FROM x"),
        (OWN, "SELECT 1 FROM t, LATERAL (SELECT 1 FROM i) x WHERE t.account_id = $1"),
        (OWN, "SELECT 1 FROM t WHERE t.account_id = $1 UNION ALL SELECT 1 FROM i"),
        (OWN, "UPDATE t SET n = $2 WHERE n = $3"),
        (OWN, "UPDATE t SET n = i.n FROM i WHERE t.account_id = $1"),
        (OWN, "DELETE FROM t USING i WHERE t.account_id = $1"),
        (OWN, "INSERT INTO t (n) VALUES ($2)"),
        (OWN, "INSERT INTO t (n, account_id) VALUES ($1, $2)"),
        (OWN, "INSERT INTO t (account_id) SELECT i.account_id FROM i WHERE i.account_id = $2"),
        (
            OWN,
            "INSERT INTO t (account_id, n) SELECT o.account_id, i.n FROM account o, i WHERE o.account_id = $1",
        ),
        (OWN, "INSERT INTO t (account_id, n) SELECT $1, u.n FROM unnest($2::int[]) AS u (n)"),
        (OWN, "TRUNCATE t"),
        (OWN, "LOCK TABLE t"),
        (OWN, "COPY t FROM STDIN"),
        (sql_rules.account_stays, "UPDATE t SET account_id = $2 WHERE account_id = $1"),
        (DETERMINISTIC, "INSERT INTO t (account_id, at) VALUES ($1, now())"),
        (DETERMINISTIC, "INSERT INTO t (account_id, id) VALUES ($1, gen_random_uuid())"),
        (DETERMINISTIC, "UPDATE t SET at = clock_timestamp() WHERE account_id = $1"),
        (DETERMINISTIC, "UPDATE t SET at = current_date WHERE account_id = $1"),
        (DETERMINISTIC, "UPDATE t SET at = current_timestamp(3) WHERE account_id = $1"),
        (DETERMINISTIC, "SELECT 1 FROM t WHERE account_id = $1 AND at < now()"),
        (sql_rules.plain_changes, "UPDATE t SET at = t.at + $2::interval WHERE t.account_id = $1"),
        (sql_rules.plain_changes, "UPDATE t SET at = $2 + ($3::interval[])[t.n] WHERE t.account_id = $1"),
        (sql_rules.plain_changes, "UPDATE t SET n = CASE t.n WHEN $2 THEN 1 END WHERE t.account_id = $1"),
        (sql_rules.plain_changes, "UPDATE t SET at = ($2::timestamptz[])[t.n] WHERE t.account_id = $1"),
        (PLAIN, f"{NEW} ON CONFLICT (account_id) DO UPDATE SET n = more_than(t.n)"),
        (PLAIN, f"{NEW} ON CONFLICT (account_id) DO UPDATE SET n = (SELECT 1)"),
        (PLAIN, f"{NEW} ON CONFLICT (account_id) DO UPDATE SET n = 1 WHERE t.at < now()"),
        (PLAIN, "UPDATE t SET n = 1 WHERE account_id = $1 RETURNING n + 1"),
        (
            sql_rules.claims_once,
            (
                "DELETE FROM t WHERE t.account_id = $1 AND t.a IN "
                "(SELECT x.a FROM t x WHERE x.account_id = $1 LIMIT 2 FOR UPDATE SKIP LOCKED)"
            ),
        ),
        (sql_rules.no_insert_inside, "WITH x AS (INSERT INTO t (account_id) VALUES ($1)) SELECT 1"),
        (sql_rules.local_settings, "SELECT set_config('app.account', $1, true)"),
        (sql_rules.local_settings, "SET app.account = 'x'"),
        (sql_rules.discovery_reads, "UPDATE t SET n = 1"),
        (sql_rules.discovery_reads, "SELECT 1 FROM t FOR UPDATE SKIP LOCKED"),
        (sql_rules.discovery_reads, "WITH a AS (SELECT account_id FROM t) SELECT account_id FROM a"),
        (sql_rules.discovery_reads, "SELECT 1 FROM t JOIN i ON i.n = t.n"),
        (sql_rules.discovery_reads, "SELECT count(*) FROM (SELECT FROM t LIMIT 5) x"),
        (sql_rules.discovery_reads, "SELECT 1 FROM t WHERE EXISTS (SELECT FROM i WHERE i.n = t.n)"),
    ],
)
def test_a_bad_statement_is_found(rule, bad):
    assert list(rule(parse_sql(bad)[0].stmt))


@pytest.mark.parametrize(
    "good",
    [
        "SELECT t.n FROM t JOIN i ON i.n = t.n WHERE t.account_id = $1 AND i.account_id = $1",
        "SELECT t.n FROM t LEFT JOIN i ON i.account_id = $1 AND i.n = t.n WHERE t.account_id = $1",
        "SELECT n FROM t WHERE $1 = account_id",
        (
            "INSERT INTO t (account_id, n) SELECT o.account_id, u.n "
            "FROM account o CROSS JOIN unnest($2::int[]) AS u (n) WHERE o.account_id = $1"
        ),
        "UPDATE t SET at = now() + $2::interval WHERE t.account_id = $1",
        "INSERT INTO t (n, account_id) VALUES ($2, $1::uuid), ($3, $1)",
        f"{NEW} ON CONFLICT (account_id) DO UPDATE SET n = t.n + EXCLUDED.n RETURNING n",
        "UPDATE t SET at = now() FROM unnest($2::int[]) AS u (n) WHERE t.account_id = $1 AND t.n = u.n RETURNING t.n",
        "WITH due AS (SELECT t.n FROM t WHERE t.account_id = $1) SELECT n FROM due",
        "SELECT rolsuper FROM pg_roles",
        "SET LOCAL lock_timeout = '1s'",
    ],
)
def test_a_good_statement_passes(good):
    assert not list(broken(Statement("a.py", 1, "", parse_sql(good)[0].stmt)))


@pytest.mark.parametrize(
    "good",
    [
        "SELECT t.account_id FROM t",
        "SELECT t.account_id FROM t WHERE NOT EXISTS (SELECT FROM i WHERE i.account_id = t.account_id)",
        "SELECT t.account_id FROM t JOIN i ON i.account_id = t.account_id AND i.n = t.n",
    ],
)
def test_good_discovery_passes(good):
    assert not list(broken(Statement("a.py", 1, "discover_t", parse_sql(good)[0].stmt)))


def misnamed_discovery(source: Source) -> Iterator[Finding]:
    """Refuse a `discover_...` function that takes no Discovery, and any other function that takes a Discovery."""
    for node in python.walk(source.tree):
        if isinstance(node, python.FunctionDef | python.AsyncFunctionDef):
            given = [python.unparse(each.annotation) for each in node.args.args if each.annotation]
            if node.name.startswith("discover") != ("Discovery" in given):
                yield Finding(
                    source.path, node.lineno, f"{node.name}: `discover_...` takes a Discovery, others a Tx"
                )


def test_functions_over_all_accounts_are_named_discover():
    """Functions whose statements may read the rows of all accounts are named `discover_...`. [D-47]"""
    sources = repository(".py", under="src/fatura/store/")
    assert none(
        finding
        for each in sources
        if each.path != "src/fatura/store/db.py"
        for finding in misnamed_discovery(each)
    )


@pytest.mark.parametrize("bad", ["def discover_t(tx: Tx): ...", "async def find(look: Discovery): ..."])
def test_misnamed_discovery_is_found(bad):
    assert list(misnamed_discovery(Source("a.py", bad)))


@pytest.mark.parametrize(
    "escaping", ["(SELECT 1 FROM t)", "-- why\nSELECT 1 FROM t", "LOCK TABLE t", "VALUES (1)"]
)
def test_unusual_statements_are_found_too(escaping):
    assert len(list(statements(Source("a.py", f"x = {escaping!r}")))) == 1


def test_statements_are_found_with_their_line_and_owner():
    text = '"""SELECT is explained here"""\nONE = "SELECT 1"\ndef discover_plans():\n    return run("SELECT 2")\n'
    found = list(statements(Source("a.py", text.replace('"""SELECT', '"""Here SELECT'))))
    assert [(each.line, each.owner, each.discovers) for each in found] == [
        (2, "one", False),
        (4, "discover_plans", True),
    ]


@pytest.mark.parametrize(
    "bad",
    [
        'sql = f"SELECT a FROM {table}"',
        'sql = "SELECT a FROM t WHERE b = %s" % b',
        'sql = "SELECT a FROM t " + where',
        'sql = "DELETE FROM {}".format(table)',
    ],
)
def test_a_statement_built_from_pieces_is_found(bad):
    assert list(concatenated_sql(Source("a.py", bad)))


def test_a_statement_outside_its_packages_is_found():
    assert list(misplaced(Source("src/fatura/usecases/catalog/plans.py", 'sql = "SELECT 1"')))


@pytest.mark.parametrize("bad", ['x = "SELECT FROM WHERE"', 'x = "SELECT 1; SELECT 2"'])
def test_literals_that_are_not_one_statement_are_refused(bad):
    with pytest.raises(NotSqlError):
        list(statements(Source("a.py", bad)))
