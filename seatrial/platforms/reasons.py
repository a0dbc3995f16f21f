"""Reasons that several platforms share."""

from seatrial.model.reason import Explanation, register

REASONS = {
    "run-keys-refused": Explanation(
        "the keys of the run cannot be stored: {problem}",
        "The folder for the keys belongs to another user, is open to others, or is a link: it may be planted.",
        "Find out who created the folder. Run `chmod 700` on your own folder, or set `XDG_STATE_HOME`.",
    ),
    "ssh-missing": Explanation(
        "ssh is missing: install openssh-client",
        "`seatrial ssh` needs the system's ssh.",
        "Install openssh-client.",
    ),
}

register(REASONS)
