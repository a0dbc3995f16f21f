"""Reasons of hosts that are up: logging in to them, their host keys, their lock, what they lack."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "baremetal-unreachable": Explanation(
        "{host}: no login: {problem}",
        "The host, or a jump host before it, does not answer. The line ends with ssh's words.",
        "Run `ssh HOST true` on this machine. Check the host's power and network, or take it out of `platform.hosts`.",
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
    "baremetal-host-busy": Explanation(
        "{host}: {holder} has it",
        "One run at a time measures a host. The lock is `seatrial.lock` in `platform.folder` on the host.",
        "Wait for that run, or interrupt it. `seatrial reap FILE` ends runs of this machine whose process is gone.",
    ),
    "baremetal-host-failed": Explanation(
        "{host}: {problem}",
        "The login works, and the run's sshd could not be started or ended there.",
        "Do what the end of the line says; `seatrial doctor FILE` lists what each host lacks.",
    ),
    "baremetal-python-missing": Explanation(
        "{host}: {python} cannot be run",
        "The hosts need Python 3, and for training also torch.",
        "Install it, or set `platform.python` to its full path.",
    ),
    "baremetal-host-lacks": Explanation(
        "{host}: {programs} missing",
        "Programs that a run calls are not on PATH of a login without terminal.",
        "Install openssh-server, openssh-client, awk, coreutils and Open MPI, or what `platform.runtime` names;"
        " `mpi.mpirun` takes a full path.",
    ),
    "baremetal-image-missing": Explanation(
        "{host}: image {image} is not there: {problem}",
        "The container of the run cannot start there yet.",
        "Run `docker pull IMAGE` or `podman pull IMAGE` on the host, after a login to its registry, or copy the .sif"
        " file there; correct `image` in the cluster file.",
    ),
    "baremetal-folder-unusable": Explanation(
        "{host}: {folder} {problem}",
        "A run needs a folder where it may write and run programs, with 100 MiB of space.",
        "Make room, or set `platform.folder` to another folder on the hosts.",
    ),
    "baremetal-hosts-remain": Explanation(
        "{count} of {hosts} hosts not cleared: {problems}; they end the run by themselves at {until}",
        "The run could not be ended there, as the host does not answer, or a process does not end.",
        "Run `seatrial reap FILE` when the hosts answer again.",
    ),
    "baremetal-deadline": Explanation(
        "the hosts ended the run at its deadline (deadline_s: {deadline_s})",
        "The run took longer than `platform.deadline_s`. No node is to blame.",
        "Raise `platform.deadline_s`, or choose a shorter suite.",
    ),
    "baremetal-jump-silent": Explanation(
        "jump host {jump} does not answer: {problem}",
        "This machine has no way to the node, because the jump host before it is gone. The node is not to blame.",
        "Run `ssh JUMP true` on this machine.",
    ),
}
