"""The receivers that the environment, Prefect Secret blocks and the cluster file configure."""

import logging
import os

from pydantic import SecretStr

from seatrial.alerts.settings import AlertSettings, SlackSettings, secret
from seatrial.config.cluster import Cluster
from tasks.sinks import Sink
from tasks.sinks.others import AppriseSink
from tasks.sinks.slack import slack_sink
from tasks.sinks.webhook import WebhookSink

log = logging.getLogger("seatrial.notify")


def sinks_of(settings: AlertSettings, cluster: Cluster) -> tuple[list[Sink], str | None]:
    """Whom to tell, and what is wrong with the settings of the others, if anything."""
    scrub = settings.scrub
    legal, malformed = settings.legal()
    slack = legal.slack
    incomplete = slack.problem() if slack else None
    mentions = {str(verdict): who for verdict, who in cluster.notify.slack.mentions.items()}
    sinks: list[Sink] = [slack_sink(slack, mentions, scrub)] if slack and not incomplete else []
    sinks += [WebhookSink(legal.webhook, scrub)] if legal.webhook else []
    sinks += [AppriseSink(url, scrub) for url in legal.urls]
    return sinks, "; ".join(problem for problem in (malformed, incomplete) if problem) or None


def settings_of(cluster: Cluster) -> AlertSettings:
    """What the environment says; what it leaves open, from the Prefect Secret blocks of that name."""
    own = AlertSettings.from_env(cluster.notify)
    slack = own.slack or _slack_of_blocks(cluster)
    urls = own.urls or tuple(SecretStr(url) for url in (_block("seatrial-alert-urls") or "").split())
    return AlertSettings(slack, own.webhook or secret(_block("seatrial-alert-webhook")), urls)


def _slack_of_blocks(cluster: Cluster) -> SlackSettings | None:
    settings = SlackSettings(
        token=secret(_block("seatrial-slack-token")),
        channel=os.environ.get("SEATRIAL_SLACK_CHANNEL", "").strip() or cluster.notify.slack.channel,
        webhook=secret(_block("seatrial-slack-webhook")),
        api_url=os.environ.get("SEATRIAL_SLACK_API_URL", "").strip() or None,
    )
    return settings if settings.token or settings.webhook else None


def _block(name: str) -> str | None:
    """The value of a Secret block; None if the block does not exist."""
    from prefect.blocks.system import Secret

    try:
        return str(Secret.load(name, _sync=True).get())  # type: ignore[call-arg, union-attr]
    except Exception as error:
        log.debug("no Secret block %s (%s)", name, type(error).__name__)
        return None
