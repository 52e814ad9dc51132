"""The environment variables that Fatura reads. `settings` reads and checks their values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable, as docs/reference/settings.md shows it."""

    name: str
    default: str
    meaning: str


VARIABLES: tuple[Variable, ...] = (
    Variable(
        "FATURA_DATABASE_URL",
        "",
        "URL of a PostgreSQL 15 or newer; when unset, an embedded one is started (D-47)",
    ),
    Variable(
        "FATURA_OWNER_URL",
        "",
        "URL of the same database with the role that owns the tables, for `fatura migrate`; when unset, the role of "
        "FATURA_DATABASE_URL owns them (D-238)",
    ),
    Variable(
        "FATURA_POOLER_URL",
        "",
        "URL of a pgbouncer in transaction mode in front of FATURA_DATABASE_URL. API and workers open transactions "
        "through it; migrations, notifications and clock checks connect to PostgreSQL directly",
    ),
    Variable(
        "FATURA_PUBLIC_URL",
        "",
        "URL at which payers reach the API, with which links to pay pages begin; live accounts need it (D-258)",
    ),
    Variable("FATURA_DATA_DIR", "./.fatura", "folder of the embedded PostgreSQL and of the key ring (D-47)"),
    Variable(
        "FATURA_PG_BIN",
        "",
        "folder of PostgreSQL binaries for the embedded server; default: the included ones",
    ),
    Variable(
        "FATURA_SECRET_KEYS",
        "",
        "key ring that encrypts secrets at rest: comma-separated base64 of 32 bytes; the first key "
        "encrypts; when unset, `secret_keys` in the data folder is used",
    ),
    Variable(
        "FATURA_OUTBOUND_ALLOW",
        "",
        "comma-separated servers, each `host:port` or `host:first-last` for a range of ports, that the engine calls "
        "for sandbox accounts even over http or at a private address (D-47)",
    ),
    Variable(
        "FATURA_OUTBOUND_ALLOW_LIVE",
        "",
        "like FATURA_OUTBOUND_ALLOW, but also for live accounts: every merchant can make the engine call these servers "
        "(D-215)",
    ),
    Variable(
        "FATURA_OUTBOUND_PORTS",
        "",
        "comma-separated ports that merchants' endpoints may have in addition to 443 (D-215)",
    ),
    Variable(
        "FATURA_OUTBOUND_DENY",
        "",
        "comma-separated networks, such as `198.51.100.0/24`, that the engine never calls, not even if another setting "
        "allows them (D-215)",
    ),
    Variable(
        "FATURA_RATE_LIMIT",
        "200",
        "requests per second of each account; a burst may have twice as many; 0 means no limit (D-48)",
    ),
    Variable(
        "FATURA_QUOTA_PRODUCTS",
        "20000",
        "how many products an account may store, archived ones included (D-245)",
    ),
    Variable(
        "FATURA_QUOTA_PLANS", "20000", "how many plans an account may store, archived ones included (D-245)"
    ),
    Variable(
        "FATURA_QUOTA_PLAN_ITEMS",
        "1000000",
        "how many items an account may store: those of all plan versions, and those of the current terms of customized "
        "subscriptions (D-245)",
    ),
    Variable(
        "FATURA_RETENTION_EVENTS",
        "1827",
        "for how many days events are kept, with their deliveries, at least 30; 0 means never deleted (D-246)",
    ),
    Variable(
        "FATURA_RETENTION_DELIVERIES",
        "90",
        "for how many days attempts to deliver an event are kept, at least 30; 0 means as long as the event (D-246)",
    ),
    Variable(
        "FATURA_RETENTION_PRICE_CALLS",
        "400",
        "for how many days price calls of a paid or canceled invoice are kept, at least 30; 0 means always (D-246)",
    ),
    Variable(
        "FATURA_RETENTION_AUDIT",
        "1827",
        "for how many days audit entries are kept, at least 180; 0 means never deleted (D-246)",
    ),
    Variable(
        "FATURA_RETENTION_GATEWAY_WEBHOOKS",
        "90",
        "for how many days copies of a gateway's webhook are recognized, at least 30; 0 means always (D-246, D-266)",
    ),
    Variable(
        "FATURA_RETENTION_CHARGE_CALLS",
        "400",
        "for how many days the calls about charges are kept, at least 30; 0 means always (D-246, D-267)",
    ),
    Variable(
        "FATURA_WEBHOOK_RATE_LIMIT",
        "12000",
        "authentic gateway webhooks per minute for each connection, twice as many in a burst; 0 means no limit (D-192)",
    ),
    Variable(
        "FATURA_REFUSED_WEBHOOK_RATE_LIMIT",
        "60",
        "refused gateway webhooks per minute from each address, twice as many in a burst; 0 means no limit (D-191)",
    ),
    Variable(
        "FATURA_PAY_PAGE_RATE_LIMIT",
        "60",
        "views of each pay page per minute, and a tenth of the views of all pay pages of an account; a burst may have "
        "twice as many; 0 means no limit (D-258)",
    ),
    Variable(
        "FATURA_TRUSTED_PROXIES",
        "0",
        "number of proxies in front of the API; each must append the address of its client to `X-Forwarded-For`. With "
        "0, that header is ignored, and all clients behind a proxy share its address (D-191). With more than 0, the "
        "proxy must limit the connections of each client (D-200)",
    ),
    Variable(
        "FATURA_MAX_CONNECTIONS",
        "10",
        "largest number of database connections in the pool of one process; each process has one or two more, outside "
        "of the pool",
    ),
    Variable(
        "FATURA_LOG_FORMAT", "auto", "`json`, `console`, or `auto`: `console` on a terminal, else `json`"
    ),
    Variable("FATURA_LOG_LEVEL", "info", "`debug`, `info`, `warning` or `error`"),
    Variable(
        "FATURA_API_URL",
        "http://127.0.0.1:8000",
        "URL of the HTTP API that `fatura listen`, `fatura events`, `fatura trigger` and `fatura gateway` call; with "
        "`https`, unless the API is on this machine",
    ),
    Variable("FATURA_API_KEY", "", "API key for the commands that use `FATURA_API_URL`"),
    Variable(
        "FATURA_INTEGRATION_SECRET",
        "",
        "integration secret, `whsec_...`: `fatura listen` signs with it, the example merchant verifies with it",
    ),
)
