"""Reasons that several platforms share, and those of logins with ssh."""

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
    "baremetal-unreachable": Explanation(
        "{host}: no login: {problem}",
        "The host, or a jump host before it, does not answer. The line ends with ssh's words.",
        "Run `ssh HOST true` on this machine. Check the host's name, port, power and network, or leave it out.",
    ),
    "baremetal-connection-lost": Explanation(
        "{host}: the connection was lost: {problem}",
        "The host, or a jump host before it, stopped answering after the connection was up.",
        "Run `ssh HOST true` here. Check its load and network; raise `platform.start_timeout_s` where it is slow.",
    ),
    "baremetal-ssh-failed": Explanation(
        "{host}: ssh failed: {problem}",
        "ssh ended with an error before the login. The line ends with its words.",
        "Run `ssh -v HOST true` on this machine.",
    ),
    "baremetal-login-refused": Explanation(
        "{host}: refuses the login of user {user} ({methods})",
        "The host accepts none of the keys that ssh offers. Passwords are never asked for.",
        "Run `ssh HOST true`; set `platform.user` and `platform.key_file`, or load the key into the ssh agent.",
    ),
    "baremetal-host-key-unknown": Explanation(
        "{host}: the host key of {place} is not in {file}; get it from the host itself, or compare it with "
        "`ssh-keyscan {place} | ssh-keygen -lf -` before you add it",
        "A host is trusted only where known_hosts has its key; no key is accepted unseen.",
        "Compare the fingerprint of `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the host's console with that "
        "of `ssh-keyscan HOST | ssh-keygen -lf -`. Where they are equal, add the line of `ssh-keyscan` to the file.",
    ),
    "baremetal-host-key-changed": Explanation(
        "{host}: {place} answers with another host key than {file} has; "
        "compare with `ssh-keygen -lF {place} -f {file}`",
        "The host was installed anew, or another machine has its address.",
        "Find out which on the host's console. Where it was installed anew, remove the old key with "
        "`ssh-keygen -R HOST -f FILE` and add the new one.",
    ),
    "baremetal-host-key-revoked": Explanation(
        "{host}: the host key of {place} is revoked in known_hosts",
        "Somebody marked the key as `@revoked`: it is not to be trusted any more.",
        "Make a new host key on the host (`ssh-keygen -A` after removing the old one), and add it to known_hosts.",
    ),
}

register(REASONS)
