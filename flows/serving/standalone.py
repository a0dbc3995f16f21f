"""The Prefect server of a container (deployments/server): `prefect server start` for its own names and pages alone.

python -m flows.serving.standalone

It listens on every address of the container at port 4200. SEATRIAL_SERVER_HOSTS names what it is reached by, with
commas, besides localhost and the host of PREFECT_SERVER_UI_API_URL; the pages of PREFECT_SERVER_CORS_ALLOWED_ORIGINS
may talk to it. The login is PREFECT_SERVER_API_AUTH_STRING; without one it does not start.
"""

import os
import sys
from urllib.parse import urlsplit

from flows.serving.auth import ORIGINS, SERVER_AUTH

HOSTS = "SEATRIAL_SERVER_HOSTS"
PORT = 4200
_UI_API_URL = "PREFECT_SERVER_UI_API_URL"


def own_names(environment: "os._Environ[str] | dict[str, str]") -> list[str]:
    """The host names that requests may be for."""
    listed = [name.strip() for name in environment.get(HOSTS, "").split(",")]
    public_host = urlsplit(environment.get(_UI_API_URL, "")).hostname or ""
    return sorted({"127.0.0.1", "localhost", public_host, *listed} - {"", "*"})


def main() -> None:
    if not os.environ.get(SERVER_AUTH):
        sys.exit(f"seatrial: {SERVER_AUTH}: is not set; give USER:PASSWORD")
    os.umask(0o077)  # its database holds secrets
    import uvicorn
    from prefect.server.api.server import create_app

    from flows.serving.garbage import collect_apart
    from flows.serving.guard import own_pages_alone

    origins = [origin for origin in os.environ.get(ORIGINS, "").split(",") if origin]
    served = own_pages_alone(create_app(), own_names(os.environ), origins)
    collect_apart()
    uvicorn.run(served, host="0.0.0.0", port=PORT, log_level="warning", lifespan="on", timeout_graceful_shutdown=3)


if __name__ == "__main__":
    main()
