"""House rules on migrations. Each rule gets the statements of all migration files, in the order of the files."""

from typing import Any

import pytest
from pglast import parse_sql

from tests.tidy import migration_rules as rules
from tests.tidy.sources import repository

GOOD = """
    CREATE TABLE t (
        account_id uuid NOT NULL,
        n integer NOT NULL DEFAULT 0,
        CONSTRAINT t_pk PRIMARY KEY (account_id, n)
    );
    CREATE TABLE i (
        account_id uuid NOT NULL,
        n integer,
        CONSTRAINT i_pk PRIMARY KEY (account_id),
        CONSTRAINT i_t_fk FOREIGN KEY (account_id, n) REFERENCES t (account_id, n)
    );
    CREATE INDEX t_due ON t (n);
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.n IS DISTINCT FROM OLD.n THEN RAISE EXCEPTION 'no'; END IF;
        NEW.n := NEW.n;
        RETURN NEW;
    END $$;
    CREATE TRIGGER t_kept BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION refuse();
    ALTER TABLE t ADD COLUMN m integer;
    ALTER TABLE t ADD CONSTRAINT t_m CHECK (m > 0);
"""


def parsed(sql: str) -> list[Any]:
    return [raw.stmt for raw in parse_sql(sql)]


@pytest.mark.parametrize("rule", rules.RULES)
def test_the_migrations_keep_the_rules(rule):
    sources = repository(".sql", under="src/fatura/store/migrations/")
    statements = [statement for source in sources for statement in parsed(source.text)]
    assert len(list(rules.tables(statements))) > 15, "the tables were not found"
    assert list(rule(statements)) == []


@pytest.mark.parametrize("rule", rules.RULES)
def test_good_migrations_pass(rule):
    assert list(rule(parsed(GOOD))) == []


@pytest.mark.parametrize(
    ("rule", "was", "becomes"),
    [
        (rules.account_leads, "account_id uuid NOT NULL,\n        n integer,", "n integer,"),
        (rules.account_leads, "account_id uuid NOT NULL,\n        n integer,", "account_id uuid, n integer,"),
        (rules.account_leads, "account_id uuid NOT NULL,\n        n integer,", "account_id text NOT NULL,"),
        (rules.account_leads, "CONSTRAINT i_pk PRIMARY KEY (account_id),", ""),
        (rules.account_leads, "PRIMARY KEY (account_id, n)", "PRIMARY KEY (n, account_id)"),
        (rules.account_leads, "FOREIGN KEY (account_id, n)", "FOREIGN KEY (n, account_id)"),
        (rules.account_leads, "REFERENCES t (account_id, n)", "REFERENCES t (n, account_id)"),
        (rules.account_leads, "REFERENCES t (account_id, n)", "REFERENCES t"),
        (rules.account_leads, "CREATE INDEX", "CREATE UNIQUE INDEX"),
        (rules.names_of_constraints, "CONSTRAINT t_pk PRIMARY", "PRIMARY"),
        (rules.names_of_constraints, "n integer,", "n integer REFERENCES t (n),"),
        (rules.names_of_constraints, "INDEX t_due", "INDEX t_pk"),
        (rules.names_of_constraints, "INDEX t_due", "INDEX"),
        (rules.names_of_constraints, "t_due", "t_due_and_a_name_that_is_longer_than_forty"),
        (rules.names_of_constraints, "REFERENCES t (account_id, n)", "REFERENCES t (account_id, n) DEFERRABLE"),
        (rules.names_of_constraints, "REFERENCES t (account_id, n)", "REFERENCES t (account_id, n) ON DELETE SET NULL"),
        (rules.deterministic_defaults, "DEFAULT 0", "DEFAULT extract(year FROM now())::int"),
        (rules.deterministic_defaults, "CHECK (m > 0)", "CHECK (m > random())"),
        (rules.triggers_read_their_row, "FOR EACH ROW", "FOR EACH STATEMENT"),
        (rules.triggers_read_their_row, "BEFORE UPDATE", "AFTER UPDATE"),
        (rules.triggers_read_their_row, "RETURN NEW;", "UPDATE i SET n = 1; RETURN NEW;"),
        (rules.triggers_read_their_row, "RETURN NEW;", "PERFORM pg_notify('x', ''); RETURN NEW;"),
        (rules.triggers_read_their_row, "RETURN NEW;", "NOTIFY x; RETURN NEW;"),
        (rules.triggers_read_their_row, "IF NEW.n IS DISTINCT FROM OLD.n", "IF EXISTS (SELECT FROM i)"),
        (rules.triggers_read_their_row, "IF NEW.n IS DISTINCT FROM OLD.n", "IF (SELECT max(n) FROM i) > 1"),
        (rules.small_steps, "ADD COLUMN m integer", "ADD COLUMN m integer, ADD COLUMN o integer"),
        (rules.small_steps, "ADD COLUMN m integer", "ADD COLUMN m integer CONSTRAINT t_m CHECK (m > 0)"),
        (rules.small_steps, "ADD CONSTRAINT t_m CHECK (m > 0)", "RENAME CONSTRAINT t_pk TO t_key"),
        (rules.small_steps, "REFERENCES t (", "REFERENCES later ("),
    ],
)  # fmt: skip
def test_a_bad_migration_is_found(rule, was, becomes):
    assert was in GOOD
    assert list(rule(parsed(GOOD.replace(was, becomes, 1))))
