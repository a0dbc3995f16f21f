"""The section `notify` of a cluster file. Secrets are in the environment."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from seatrial.config.yamlfile import Strict, matching

Severity = Literal["degraded", "fail", "corrupt", "inconclusive", "not_run"]
Mention = Annotated[
    str,
    AfterValidator(
        matching(
            r"here|channel|everyone|[UW][A-Z0-9]{2,20}|S[A-Z0-9]{2,20}",
            "here, channel, everyone, or the id of a member (U...) or of a user group (S...)",
        )
    ),
]
legal_channel = matching(
    r"#?[\w][\w.-]{0,79}", "a channel's name or id, such as gpu-alerts or C024BE91L"
)
Channel = Annotated[str, AfterValidator(legal_channel)]


def _legal_address(value: str) -> str:
    unknown = set(re.findall(r"{([^}]*)}", value)) - {"run_id", "cluster"}
    has_login = "@" in value.partition("//")[2].partition("/")[0]
    if not re.fullmatch(r"https?://[^\s<>|\"'`]+", value) or unknown or has_login:
        raise ValueError(
            "must be an http or https address without a login, such as"
            " https://reports.example.com/{run_id}/report.html;"
            f" {{run_id}} and {{cluster}} are filled in, is {value!r}"
        )
    return value


class SlackNotify(Strict):
    """The Slack channel, and the members to mention."""

    channel: Channel | None = Field(
        None, description="this cluster's own; SEATRIAL_SLACK_CHANNEL wins"
    )
    mentions: dict[Severity, tuple[Mention, ...]] = Field(
        default_factory=dict, description="who is called at which verdict"
    )


class Notify(Strict):
    """Alerts of this cluster. Their secrets are in the environment (docs/alerts.md)."""

    slack: SlackNotify = Field(
        SlackNotify.model_construct(), description="where in Slack, and who is called"
    )
    quiet: Literal["nothing", "digest"] = Field(
        "nothing", description="what a run posts when there is nothing new"
    )
    report_url: Annotated[str, AfterValidator(_legal_address)] | None = Field(
        None, description="where people read reports: {run_id}, {cluster}"
    )
