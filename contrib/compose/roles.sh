#!/bin/sh
# PostgreSQL's image runs this script once, when it initializes its data folder. The role fatura owns the tables and migrates them.
# The API and the workers use the role fatura_app, which can only read and write rows, within Row Level Security.
set -eu

psql --username "$POSTGRES_USER" --set ON_ERROR_STOP=1 \
    --set owner="$OWNER_PASSWORD" --set application="$APPLICATION_PASSWORD" <<'SQL'
CREATE ROLE fatura LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD :'owner';
CREATE ROLE fatura_app LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD :'application';
CREATE DATABASE fatura OWNER fatura;
\connect fatura
GRANT USAGE ON SCHEMA public TO fatura_app;
ALTER DEFAULT PRIVILEGES FOR ROLE fatura IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO fatura_app;
SQL
