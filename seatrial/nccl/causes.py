"""Causes of failure in logs: those of launchers, NCCL, torch and GPU drivers, and Xid lines. Pure.

Texts: Open MPI's help-*.txt (4.x ORTE, 5.x PRRTE), OpenSSH, Slurm, MPICH's Hydra, PALS, as seen in real logs;
nccl-tests src/common.h and src/common.cu; NCCL src/debug.cc, src/transport, src/init.cc; torch ProcessGroupNCCL.
Xids: NVIDIA's catalog (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html).
"""

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["network", "gpu", "system", "config", "software", "launcher", "hang", "remote", "unknown"]


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing to look for.

    `needle` is a lower-case text that every match contains: it is looked for first because that is cheap. `fatal` says
    that a run does not survive it; `secondary` that it follows from something that went wrong elsewhere. `pattern` is a
    regular expression, case-blind; its groups `host`, `rank` and `detail` are kept. Its time must be linear: a gap is
    bounded (`.{0,400}`), a run of characters begins only where one can (`(?<!...)`) and is not given back (`++`).
    """

    kind: Kind
    cause: str
    needle: str
    pattern: str
    next_step: str
    fatal: bool = True
    secondary: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause that was found: `evidence` is the line (or the joined box of lines) that shows it, cut at 300 characters.

    `secondary` findings follow from another rank's death or from a cause that stands elsewhere in the log; a run
    goes on in spite of one that is not `fatal`. `rank` is the one that the line or its label names.
    """

    kind: Kind
    cause: str
    evidence: str
    host: str | None
    rank: int | None
    secondary: bool
    next_step: str
    fatal: bool = True

    def __str__(self) -> str:
        where = f" on {self.host}" if self.host else ""
        where += f" (rank {self.rank})" if self.rank is not None else ""
        return f"{self.cause}{where}: {self.evidence}"


_XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{1,40}+)[^)]{0,80}\): (?P<number>\d+)")
_SXID = re.compile(r"nvidia-nvswitch\d{1,9}+: SXid \((?:PCI:)?(?P<pci>[^)]{1,80})\): (?P<number>\d+)")
_LOGGED_BY = re.compile(r"(?<![\w.-])([\w.-]{1,253}+) kernel: ")
_APPLICATION = "the application's fault or a consequence: restart it, look for an earlier Xid"
_RESET = "drain the node and reset the GPU; if it comes back, have it replaced"
MEANING = {
    13: ("graphics engine exception", _APPLICATION),
    31: ("GPU memory page fault", _APPLICATION),
    43: ("GPU stopped processing", _APPLICATION),
    45: ("preemptive cleanup", _APPLICATION),
    48: ("double-bit ECC error", _RESET),
    63: ("row remapping recorded", "reset the GPU at the next chance"),
    64: ("row remapping failed", _RESET),
    74: ("NVLink error", "check the NVLink and its switch; reset the GPU"),
    79: ("GPU fell off the bus", "power-cycle the node; check seating, power and temperature"),
    92: ("high rate of single-bit ECC errors", "watch the GPU; replace it if the rate stays"),
    94: ("contained ECC error", "restart the application, reset the GPU at the next chance"),
    95: ("uncontained ECC error", _RESET),
    119: ("GSP timeout", _RESET),
    120: ("GSP error", _RESET),
    121: ("C2C link error", _RESET),
    140: ("unrecovered ECC error", _RESET),
    154: ("GPU recovery action changed", "do what the line names: GPU reset, node reboot or drain"),
}
OF_APPLICATIONS = frozenset({13, 31, 43, 45})
_NOT_FATAL = frozenset({63, 92, 154})


def xid_finding(text: str) -> Finding | None:
    """The Xid or SXid that a line of the kernel's log reports."""
    match = _XID.search(text) or _SXID.search(text)
    if match is None:
        return None
    number, kind = int(match["number"][:9]), "SXid" if match.re is _SXID else "Xid"
    meaning, step = meaning_of(kind, number)
    cause = f"{kind} {number} ({meaning}) on GPU {match['pci']}"
    fatal = match.re is _XID and number not in _NOT_FATAL
    host = _LOGGED_BY.search(text, 0, match.start())
    return Finding("gpu", cause, text.strip()[:300], host[1] if host else None, None, False, step, fatal)


def meaning_of(kind: str, number: int) -> tuple[str, str]:
    """What an Xid or an SXid means, and what to do."""
    if kind == "SXid":
        return "NVSwitch error", "check the NVSwitch and fabric manager's log"
    return MEANING.get(number, _unlisted(number))


def _unlisted(number: int) -> tuple[str, str]:
    if 144 <= number <= 150:
        return "NVLink 5 error", "check the NVLink, its switch and fabric manager's log; reset the GPU"
    return "see NVIDIA's catalog", "look the number up in NVIDIA's Xid catalog"


SSH = (
    Cause("launcher", "ssh host key verification failed", "host key verification failed",
          r"Host key verification failed",
          "pin the worker's host key in known_hosts, under the name and the port that are dialled"),
    Cause("launcher", "ssh permission denied", "permission denied (",
          r"(?:@(?P<host>[\w.-]+): )?Permission denied \((?:publickey|password|gssapi|keyboard|hostbased)",
          "check that the key pair is mounted, its mode is 0600 and authorized_keys holds the public half"),
    Cause("launcher", "ssh connection refused", "connection refused",
          r"connect to (?:host|address) (?P<host>\S+) port \d+: Connection refused",
          "sshd does not listen there: check that the worker runs and that the port is the launcher's"),
    Cause("launcher", "ssh connection timed out", "timed out",
          r"connect to (?:host|address) (?P<host>\S+) port \d+: (?:Connection|Operation) timed out",
          "nothing answers: check that the node is up and that no firewall or network policy drops the port"),
    Cause("launcher", "no route to the host", "no route to host",
          r"(?:connect to (?:host|address) (?P<host>\S+) .{0,400})?No route to host",
          "check the node's network and routes"),
    Cause("launcher", "host name cannot be resolved", "could not resolve hostname",
          r"Could not resolve hostname (?P<host>[^\s:]+)",
          "wait for the worker's DNS record (headless service) or use addresses"),
    Cause("launcher", "host name cannot be resolved", "name or service not known",
          r"(?:(?<![\w.-])(?P<host>[\w.-]{1,253}+): )?Name or service not known", "check the host name and DNS"),
    Cause("launcher", "ssh connection broken at key exchange", "kex_exchange_identification",
          r"kex_exchange_identification", "sshd closed the connection: check MaxStartups, its log and host keys"),
    Cause("launcher", "ssh connection closed", "connection closed by",
          r"Connection closed by (?:remote host|(?:UNKNOWN|(?P<host>[\d.a-f:]+)) port \d+)", "read sshd's log there"),
)  # fmt: skip

MPIRUN = (
    Cause("launcher", "not enough slots", "not enough slots",
          r"not enough slots available", "give the hostfile slots=<GPUs> per host, or ask for fewer ranks"),
    Cause("launcher", "not enough slots", "are not enough slots",
          r"All nodes which are allocated for this job are already filled", "free slots or ask for fewer ranks"),
    Cause("launcher", "mpirun refuses to run as root", "run as root",
          r"has detected an attempt to run as root", "pass --allow-run-as-root in the container"),
    Cause("launcher", "executable missing", "executable",
          r"(?:could not access or execute an executable|unable to (?:find|launch) the specified (?:exec|appl))"
          r"(?:.{0,400}?\bNode: +(?P<host>\S+))?",
          "check the path of the nccl-tests binary on every node"),
    Cause("launcher", "orted not found", "ted: ",
          r"(?:orted|prted): (?:command not found|No such file)", "install the same MPI at the same path everywhere"),
    Cause("launcher", "daemon failed after launch", "daemon has unexpectedly failed",
          r"An? (?:ORTE|PRTE) daemon has unexpectedly failed after launch",
          "the daemon cannot call back: set oob_tcp_if_include and btl_tcp_if_include, open the firewall"),
    Cause("launcher", "daemons did not start", "was unable to reliably start one or more daemons",
          r"was unable to reliably start one or more daemons", "read the ssh message before it"),
    Cause("launcher", "daemon did not report back", "daemon failed to report back",
          r"daemon failed to report back after being spawned", "read the ssh message before it; then check firewalls"),
    Cause("network", "lost communication with a daemon", "has lost communication with a remote daemon",
          r"has lost communication with a remote daemon(?:.{0,400}Remote daemon *: \S+ on node (?P<host>\S+))?",
          "the node died or its network did: look at that node's kernel log"),
    Cause("network", "lost communication with a daemon", "remote daemon",
          r"^\s*Remote daemon *: \S+ on node (?P<host>\S+)", "the node died or its network did: see its kernel log"),
    Cause("hang", "time limit reached", "time limit for job execution",
          r"user-provided time limit for job execution has been reached", "find what hung, or raise the time limit"),
    Cause("launcher", "more processes than cpus to bind to", "binding more processes than cpus",
          r"would result in binding more processes than cpus", "pass --bind-to none, or --oversubscribe"),
    Cause("launcher", "hostfile missing or unreadable", "hostfile",
          r"Open (?:RTE|MPI) was unable to open the hostfile|hostfile .{0,400}(?:not found|No such file)",
          "check that the launcher mounts the hostfile"),
    Cause("system", "process killed by a signal", "exited on signal",
          r"process rank (?P<rank>\d+) with PID .{0,400}?on node (?P<host>\S+) exited on signal "
          r"(?P<detail>\d+(?: \([^)]*\))?)",
          "signal 9: look for the OOM killer or a time limit; 7: /dev/shm is full; 11: read the stack above"),
    Cause("launcher", "MPI was aborted", "mpi_abort",
          r"MPI_ABORT was invoked on rank (?P<rank>\d+)", "read the message of that rank", secondary=True),
    Cause("launcher", "a process exited with an error", "non-zero",
          r"process(?:es)? (?:returned a|exited with) *non-zero (?:exit code|status)"
          r"(?:.{0,400}Process name: *\[.{0,400}?,(?P<rank>\d+)\])?",
          "read the message of the process that ended first", secondary=True),
    Cause("remote", "an MPI peer disconnected", "peer process has unexpectedly disconnected",
          r"An MPI communication peer process has unexpectedly disconnected(?:.{0,400}Peer host: *(?P<host>\S+))?",
          "look for the rank that died first", secondary=True),
    Cause("launcher", "MPI could not start", "pmix",
          r"pmix_server_init failed|PMIx? server.{0,400}(?:failed|error)|OPAL ERROR: Unreachable",
          "match the PMIx of srun --mpi and of the MPI in the image"),
    Cause("launcher", "PMIx collective timed out", "collective timeout",
          r"(?<![\w.-])(?P<host>[\w.-]{1,253}+) \[\d{1,6}+\]: pmix.{0,200}?collective timeout",
          "the nodes' slurmstepd cannot reach each other: check SLURM's network and SLURM_PMIX_TIMEOUT"),
    Cause("launcher", "MPI could not start", "fatal error in",
          r"Abort\(\d+\) on node \d+(?: \(rank (?P<rank>\d+) in comm \d+\))?: Fatal error in \w+",
          "read the error stack"),
    Cause("launcher", "MPI could not start", "aborting",
          r"BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES|MPI_Init.{0,400}aborting",
          "read the message before it"),
    Cause("launcher", "MPI could not start", "mpi_init",
          r"It looks like (?:MPI_INIT|MPI_Init|orte_init|prte_init) failed", "read the reason in the box"),
    Cause("launcher", "launch failed", "failed on",
          r"\b(?:launch|start) failed on (?P<host>[\w.-]+): ", "the reason stands in the line itself"),
    Cause("launcher", "Cassini allocation failed", "cxi alloc failed",
          r"CXI alloc failed on \w+", "too many ranks or services for the NIC's limits: see the switch's ACs"),
)  # fmt: skip

HOST = (
    Cause("hang", "cancelled by Slurm", "cancelled at",
          r"\*\*\* (?:JOB|STEP) \S+ ON (?P<host>\S+) CANCELLED AT .{0,400}",
          "time limit, preemption or scancel: see sacct"),
    Cause("launcher", "a task exited with an error", "srun: error:",
          r"srun: error: (?P<host>[\w.-]+): tasks? [\d,\-]+: (?:Exited with exit code \d+|Killed|.{0,400})",
          "read the message of that task", secondary=True),
    Cause("launcher", "MPI plugin of srun missing", "plugin name for mpi/",
          r"srun: error: Couldn't find the specified plugin name for mpi/(?P<detail>[\w.-]{1,40})",
          "choose another with srun --mpi; srun --mpi=list has them"),
    Cause("launcher", "srun could not start the job", "srun: ",
          r"srun: (?:fatal|error): (?:Unable to|Invalid|Requested|Job |CPU binding|.{0,400}(?:launch failed|invalid))",
          "the reason stands in the line itself"),
    Cause("system", "srun reported an error", "srun: ", r"srun: (?:fatal|error): ",
          "the reason stands in the line itself"),
    Cause("software", "shared library missing", "error while loading shared libraries",
          r"error while loading shared libraries: (?P<detail>\S+)", "check LD_LIBRARY_PATH and the image"),
    Cause("software", "libraries do not fit together", "symbol lookup error",
          r"symbol lookup error|undefined symbol:", "mixed library versions: use the ones the binary was built with"),
    Cause("software", "glibc too old", "glibc",
          r"version `(?:GLIBC|GLIBCXX)_[\d.]+' not found", "build in, or run in, the same image"),
    Cause("launcher", "executable missing", "_perf",
          r"\w_perf\"?'?: (?:command not found|No such file or directory|not found)"
          r"|(?:No such file or directory|not found)[:\s].{0,400}_perf", "check the path of the nccl-tests binary"),
    Cause("launcher", "command missing", "command not found",
          r"(?<![\w./-])(?P<detail>[\w./-]{1,400}+): command not found", "install it, or put it on PATH", fatal=False),
    Cause("launcher", "executable missing", "executable file not found",
          r"executable file not found in \$PATH", "check the command of the container"),
    Cause("system", "binary of another architecture", "exec format error",
          r"Exec format error", "build the image for the node's architecture (arm64 for Grace)"),
    Cause("system", "crashed", "segmentation fault", r"Segmentation fault", "read the stack; try another NCCL version"),
    Cause("system", "out of memory", "out of memory",
          r"(?:Out of memory: Killed process|oom[-_]kill|Memory cgroup out of memory)", "raise the memory limit"),
    Cause("system", "out of memory", "oom", r"\boom[-_ ]?kill\w*|\bOOMKilled\b", "raise the memory limit"),
    Cause("system", "bus error: /dev/shm too small", "bus error", r"\bBus error", "give the pod a larger /dev/shm"),
    Cause("launcher", "container ended with an error", "terminated with exit code",
          r"command terminated with exit code \d+", "read the message before it", secondary=True),
)  # fmt: skip


# As every pattern here, it begins at few places of a line and reads on without looking back: the time is linear.
_HOST = r"(?:(?<![\w.-])(?P<host>[\w.-]{1,253}+): )?"
_TEST = _HOST + r"Test NCCL failure \S+ '"

TESTS = (
    Cause("gpu", "CUDA failure", "test cuda failure",
          _HOST + r"Test (?:CUDA|HIP) failure \S+ '(?P<detail>[^']*)",
          "check the GPU, its driver and that no other process holds it (nvidia-smi)"),
    Cause("gpu", "HIP failure", "hip failure",
          _HOST + r"Test HIP failure \S+ '(?P<detail>[^']*)",
          "check the GPU and its driver (rocm-smi)"),
    Cause("gpu", "unhandled CUDA error", "unhandled cuda error",
          r"(?:" + _TEST + r")?unhandled cuda error", "run with NCCL_DEBUG=WARN and read the CUDA message"),
    Cause("system", "unhandled system error", "unhandled system error",
          r"(?:" + _TEST + r")?unhandled system error",
          "a system call, the network or /dev/shm: run with NCCL_DEBUG=WARN and read the line before it"),
    Cause("remote", "a remote process exited", "remote process exited",
          r"(?:" + _TEST + r")?remote process exited or there was a network error",
          "another rank died first, or the network broke: look for the earliest other message", secondary=True),
    Cause("config", "invalid usage", "invalid usage", r"(?:" + _TEST + r")?invalid usage",
          "run with NCCL_DEBUG=WARN: often two ranks on one GPU, or an unknown NCCL_NET"),
    Cause("config", "invalid argument", "invalid argument", _TEST + r"invalid argument",
          "run with NCCL_DEBUG=WARN and read the argument it names"),
    Cause("software", "NCCL internal error", "internal error - please report",
          r"(?:" + _TEST + r")?internal error - please report", "run with NCCL_DEBUG=WARN; try another NCCL version"),
    Cause("hang", "NCCL timeout", "test nccl failure", _TEST + r"timeout", "look for the rank that does not answer"),
    Cause("software", "NCCL failure", "test nccl failure", _TEST + r"(?P<detail>[^']*)",
          "run with NCCL_DEBUG=WARN and read the line before it"),
    Cause("hang", "test timed out", "test timeout", _HOST + r"Test timeout \(\d+s\)",
          "a collective did not finish: look for the rank or the link that hangs"),
    Cause("config", "fewer GPUs than asked for", "invalid number of gpus",
          r"Invalid number of GPUs: (?P<detail>\d+ requested but only \d+ were found)", "check -g, visible GPUs"),
    Cause("config", "fewer GPUs than asked for", "the number of requested gpus",
          r"number of requested GPUs \(\d+\) is greater than the number of GPUs available", "check -g, visible GPUs"),
    Cause("config", "nccl-tests printed its usage", "usage:",
          r"USAGE: \S*_perf", "an option is not known to this version of nccl-tests: see the line before the usage"),
    Cause("config", "invalid option", "invalid option", r"^\s*invalid option '",
          "check nccl-tests' version: see --help"),
    Cause("config", "invalid sizes", "invalid size",
          r"invalid sizes? (?:for|specified for) 'm\w+bytes'", "-b must not be above -e"),
    Cause("software", "NCCL version does not fit", "incompatible nccl versions",
          r"Incompatible NCCL versions", "rebuild nccl-tests against the NCCL it runs with"),
)  # fmt: skip

NCCL = (
    Cause("network", "no acknowledgement from the peer (IB completion 12)", "got completion",
          r"Got completion from peer .{0,400}(?:status=(?:IBV_WC_RETRY_EXC_ERR|12)\b|with (?:error|status) 12\b|\(12\))"
          r"|Got completion with error 12\b|Got completion .{0,400}status=12\b",
          "a link, route, GID or MTU is broken or congested: check the ports' counters on both ends"),
    Cause("network", "work flushed after another error (IB completion 5)", "got completion",
          r"Got completion .{0,400}(?:IBV_WC_WR_FLUSH_ERR|status=5\b|error 5\b)", "look for the first other error",
          secondary=True),
    Cause("network", "InfiniBand completion error", "got completion",
          r"Got completion .{0,400}(?:error|status)[ =](?P<detail>[\w()]+)",
          "13: receiver not ready, a consequence; 4, 10, 11: memory protection or remote operation"),
    Cause("network", "link or NIC event", "async fatal event", r"async fatal event (?:on|:)?.{0,400}",
          "read the NIC's log"),
    Cause("network", "link flapped", "port error", r"(?:async event|non-fatal async event).{0,400}port error",
          "check cable and optics: the port went down", fatal=False),
    Cause("network", "GID table changed", "gid table changed", r"GID table changed",
          "an address of the NIC changed during the run", fatal=False),
    Cause("network", "peer not reachable over RoCE", "ibv_modify_qp",
          r"ibv_modify_qp failed with (?:error )?(?:110|Connection timed out)", "check GID index, subnet and routes"),
    Cause("system", "memory cannot be locked", "cannot allocate memory",
          r"ibv_(?:create_qp|create_cq|reg_mr\w*|open_device)\b.{0,400}Cannot allocate memory",
          "raise the memlock ulimit in the container"),
    Cause("network", "InfiniBand call failed", "call to ibv_",
          r"Call to (?P<detail>ibv_\w+) failed", "check the NIC, its driver and the container's rights"),
    Cause("config", "no network interface found", "no socket interface found",
          r"Bootstrap ?: no socket interface found", "NCCL_SOCKET_IFNAME names no interface of this host"),
    Cause("config", "no network device found", "no device found matching",
          r"no device found matching|no NET device found matching", "check NCCL_IB_HCA and NCCL_SOCKET_IFNAME"),
    Cause("network", "bootstrap could not connect", "exceeded error retry count",
          r"connect to (?P<detail>\S+) returned .{0,400}exceeded error retry count|exceeded error retry count",
          "wrong NCCL_SOCKET_IFNAME, or a firewall between the hosts"),
    Cause("network", "bootstrap could not connect", "socketstartconnect",
          r"socketStartConnect: Connect to (?P<detail>\S+) failed", "wrong NCCL_SOCKET_IFNAME, or a firewall"),
    Cause("network", "network unreachable", "no route to host", r"NCCL WARN .{0,400}No route to host",
          "check the routes"),
    Cause("remote", "a peer closed the connection", "connection closed by remote peer",
          r"Connection closed by remote peer(?: (?P<detail>\S+))?", "another rank died first", secondary=True),
    Cause("remote", "a peer closed the connection", "connection reset by peer",
          r"NCCL WARN .{0,400}Connection reset by peer", "another rank died first", secondary=True),
    Cause("system", "/dev/shm too small", "shared memory segment",
          r"(?:Error while (?:creating|attaching to)|Call to posix_fallocate failed.{0,400}) shared memory segment",
          "give the container a larger /dev/shm"),
    Cause("system", "no space left", "no space left on device", r"No space left on device",
          "enlarge /dev/shm or the disk"),
    Cause("software", "NCCL versions differ between ranks", "version mismatch",
          r"NCCL version mismatch|[Mm]ismatch.{0,400}NCCL version", "run the same image on every node"),
    Cause("software", "NCCL versions differ between ranks", "compiled with too old version",
          r"compiled with too old version", "run the same image on every node"),
    Cause("config", "two ranks use one GPU", "same gpu", r"Multiple Ranks are using the same GPU",
          "check device binding"),
    Cause("config", "two ranks use one GPU", "duplicate gpu", r"Duplicate GPU detected", "check device binding"),
    Cause("config", "network plugin missing", "not found", r"network (?P<detail>\S+) not found",
          "the plugin that NCCL_NET names is not in the image or not on LD_LIBRARY_PATH"),
    Cause("config", "network plugin missing", "failed to initialize any net plugin",
          r"Failed to initialize any NET plugin", "check NCCL_NET, NCCL_NET_PLUGIN and the NICs"),
    Cause("system", "topology cannot be read", "could not find real path",
          r"Could not find real path", "mount /sys into the container", fatal=False),
    Cause("config", "network plugin not found", "could not find: libnccl-net",
          r"NET/Plugin ?: Could not find:? ?\S*libnccl-net\S*", "NCCL goes on with its own IB or Socket", fatal=False),
    Cause("gpu", "GPU out of memory", "out of memory", r"Cuda failure \S* ?'out of memory'", "lower -e, free the GPU"),
    Cause("gpu", "CUDA failure", "cuda failure", r"NCCL WARN .{0,400}Cuda failure (?:\d+ )?'(?P<detail>[^']*)",
          "check the GPU and its driver"),
    Cause("hang", "torch watchdog: a collective timed out", "watchdog caught collective",
          r"(?:\[Rank (?P<rank>\d+)\] )?Watchdog caught collective operation timeout: (?P<detail>WorkNCCL\([^)]*\))",
          "look for the rank that did not enter the collective"),
    Cause("remote", "torch process group failed", "processgroupnccl",
          r"ProcessGroupNCCL.{0,400}(?:[Ee]xception|[Ee]rror)", "look for the earliest other message", secondary=True),
)  # fmt: skip
