# Run once by PostgreSQL's image, when it makes its databases; by hand where they are older (docs/production.md). Runs keep
# their history in a database of their own, as a user who cannot read Prefect's.
psql --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --no-psqlrc --set ON_ERROR_STOP=1 <<'SQL'
\getenv password HISTORY_PASSWORD
CREATE ROLE seatrial LOGIN PASSWORD :'password';
CREATE DATABASE seatrial OWNER seatrial;
REVOKE CONNECT ON DATABASE prefect, postgres, seatrial FROM PUBLIC;
SQL
