#!/bin/sh
set -eu
if [ "$(id -u)" = 0 ]; then
    install -d -o postgres -g postgres -m 700 "$PGDATA" /var/run/postgresql
    exec setpriv --reuid postgres --regid postgres --clear-groups "$0"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    echo "$POSTGRES_PASSWORD" > /tmp/password
    initdb --pgdata "$PGDATA" --username "$POSTGRES_USER" --encoding UTF8 --pwfile /tmp/password --auth-host scram-sha-256 --no-sync
    rm /tmp/password
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    echo "create database $POSTGRES_DB" | postgres --single -j -D "$PGDATA" postgres
    pg_ctl --pgdata "$PGDATA" --options "-c listen_addresses=''" --wait start
    for script in /docker-entrypoint-initdb.d/*.sh; do
        # shellcheck disable=SC1090
        if [ -e "$script" ]; then . "$script"; fi
    done
    pg_ctl --pgdata "$PGDATA" --mode fast --wait stop
fi
exec postgres -D "$PGDATA" -c listen_addresses='*'
