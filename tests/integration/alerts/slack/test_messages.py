"""Whom a message calls, what it shows, and what it keeps to itself."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.alerts.settings import AlertSettings
from seatrial.checks.suites import load_suite
from seatrial.config.notify import Notify, SlackNotify
from seatrial.config.run import RUNS_URL, Run
from seatrial.history.incident import outcome_of
from seatrial.history.store import Store
from seatrial.model.reason import uncoded
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from seatrial.runs.run_state import RunState
from seatrial.tasks.notify import notify
from seatrial.tasks.record import record
from tests import nights, samples
from tests.integration.alerts.conftest import CLUSTER
from tests.integration.alerts.slack.told import night
from tests.slack_server import TOKEN, Slack


def test_cluster_file_sets_channel_mentions_and_quiet(slack: Slack, store: Store) -> None:
    mentions = {"fail": ("U024BE7LH", "S0614TZR7"), "degraded": ("here",)}
    own = Notify(slack=SlackNotify(channel="gpu-east", mentions=mentions), quiet="digest")
    cluster = CLUSTER.model_copy(update={"notify": own})
    environment = {"SEATRIAL_SLACK_TOKEN": TOKEN, "SEATRIAL_SLACK_API_URL": f"{slack.url}/api"}
    settings = AlertSettings.from_env(own, environment)
    notify(nights.bad(1, verdict=Verdict.DEGRADED), cluster, store, settings)
    (message,) = slack.posted
    assert message.channel == "C0EAST123"
    assert "<!here>" in message.shown
    notify(nights.bad(2), cluster, store, settings)
    assert "<@U024BE7LH> <!subteam^S0614TZR7>" in slack.replies(message)[-2].text
    notify(nights.good(3), cluster, store, settings)
    notify(nights.good(4), cluster, store, settings)
    assert slack.posted[-1].text.startswith(":large_green_circle: h100-east, nightly: pass")
    assert len(slack.posted) == 2


def test_a_served_run_links_its_report(
    slack: Slack,
    by_token: AlertSettings,
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(RUNS_URL, "https://checks.example.com/seatrial/runs")
    out = tmp_path / "runs" / "run-1"
    out.mkdir(parents=True)
    night(nights.bad(1), store, by_token, out)
    (message,) = slack.posted
    assert (
        "<https://checks.example.com/seatrial/runs/run-1/report.html|The report>" in message.shown
    )


def test_a_thousand_nodes_stay_under_slacks_limits(
    slack: Slack, by_token: AlertSettings, store: Store
) -> None:
    names = [f"rack-{i // 32}-node-{i}" for i in range(1000)]
    judged = nights.bad(1).checks[1].judgements * 40
    checks = [replace(nights.bad(1).checks[1], judgements=judged)] * 3
    huge = nights.bad(
        1, suspects=nights.suspected(*names), checks=checks, reason=uncoded("; ".join(names))
    )
    notified = night(huge, store, by_token)
    # The server holds messages to Slack's limits
    assert notified.summary == "slack #alerts: sent to #alerts"
    (message,) = slack.posted
    assert "and 997 more in the report" in message.shown
    assert slack.replies(message)


def test_text_of_a_log_creates_no_mentions_or_links(
    slack: Slack, by_token: AlertSettings, store: Store
) -> None:
    evil = (
        "<!channel> <@U024BE7LH> <https://evil.example.com|ok> `x` ```y``` *bold* _it_ ~no~ & "
        "&lt;!here&gt;\n> quote"
    )
    night(replace(samples.hostile(evil), run_id="run-1"), store, by_token)
    notify(replace(samples.hostile(evil), run_id="run-2"), CLUSTER, store, by_token)
    for message in slack.messages.values():
        for text in (message.shown, message.text):
            assert not any(
                mark in text
                for mark in ("<!", "<@", "<http", "<U", "```", "`x`", "*bold*", "_it_", "~no~")
            )
    assert all(
        element.get("verbatim")
        for m in slack.posted
        for b in m.blocks[1:]
        for element in b.get("elements", [b.get("text")])
    )


def test_secrets_of_a_log_are_not_sent(
    slack: Slack,
    by_token: AlertSettings,
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted = {"HF_TOKEN": "hf_plantedPlantedPlanted1", "DB_PASSWORD": "planted-swordfish"}
    for name, value in planted.items():
        monkeypatch.setenv(name, value)
    reason = f"ranks died: {planted['HF_TOKEN']} and {planted['DB_PASSWORD']} and token={TOKEN}"
    for number in (1, 2):
        run = Run(f"run-{number}", CLUSTER, load_suite("nightly"), tmp_path)
        trial = RunState(
            run, started=nights.bad(number).started, finished=nights.bad(number).finished
        )
        suspect = replace(nights.suspected("node-1")[0], evidence=uncoded(reason))
        trial.add(Check("collectives", Verdict.FAIL, uncoded(reason), 1.0, suspects=(suspect,)))
        result = trial.result()
        written = record(result, run, store)
        notify(result, CLUSTER, store, by_token, written["report.html"])
    sent = b"".join(body for _, _, body in slack.requests).decode(errors="replace")
    assert "ranks died" in sent
    for secret in (*planted.values(), TOKEN):
        assert secret not in sent
    incident = json.dumps(
        [
            i.reason.to_dict()
            for i in store.incidents("h100-east", "nightly", outcome_of(nights.bad(2)), [])
        ]
    )
    assert not any(secret in incident for secret in (*planted.values(), TOKEN))
