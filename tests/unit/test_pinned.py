"""Which flows a runner or worker runs, and which requests a server takes."""

import asyncio
from typing import Any, cast
from uuid import uuid4

import httpx
import pytest
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.flows import load_flow_from_entrypoint
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from flows.serving.guard import own_pages_alone
from flows.serving.pinned import ENTRYPOINTS, entrypoint_of
from flows.serving.standalone import own_names
from seatrial.model.errors import InputError


@pytest.mark.parametrize(("name", "entrypoint"), ENTRYPOINTS.items())
def test_every_entrypoint_is_that_flow(name: str, entrypoint: str) -> None:
    assert load_flow_from_entrypoint(entrypoint).name == name


def test_a_flow_of_somebody_else_is_refused() -> None:
    class Server:
        async def read_flow(self, _: object) -> Any:
            return type("Flow", (), {"name": "evil"})

    run = FlowRun(flow_id=uuid4())
    with pytest.raises(
        InputError, match=r"flow 'evil': is not seatrial's and is not run here; legal: seatrial-alarm, "
    ):
        asyncio.run(entrypoint_of(cast(PrefectClient, Server()), run))


def test_the_names_of_a_server() -> None:
    hosts, seen = "server, prefect.seatrial,*", "https://c.example.com/api"
    environment = {"SEATRIAL_SERVER_HOSTS": hosts, "PREFECT_SERVER_UI_API_URL": seen}
    assert own_names(environment) == ["127.0.0.1", "c.example.com", "localhost", "prefect.seatrial", "server"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "server:4200"}, 200),
        ({"Host": "server:4200", "Origin": "https://c.example.com"}, 200),
        ({"Host": "evil.example.com"}, 400),
        ({"Host": "server:4200", "Origin": "https://evil.example.com"}, 403),
    ],
)
def test_only_own_names_and_pages_are_answered(headers: dict[str, str], status: int) -> None:
    app = Starlette(routes=[Route("/", lambda _: PlainTextResponse("here"))])
    guarded = httpx.ASGITransport(app=own_pages_alone(app, ["server"], ["https://c.example.com"]))

    async def get() -> int:
        async with httpx.AsyncClient(transport=guarded, base_url="http://server:4200") as client:
            return (await client.get("/", headers=headers)).status_code

    assert asyncio.run(get()) == status
