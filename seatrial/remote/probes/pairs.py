"""Try SSH from this node to its peers, many at once; one JSON line per peer as it is known.

Standard input: {"peers": [{"name", "address", "port"}], "timeout_s": seconds, "parallel": count}
Output lines:   {"peer": name, "error": last line that ssh printed, "" where it worked}
"""

import json
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed

# Limit on files that ssh writes, in blocks of 512 bytes; a known_hosts of 10,000 nodes needs half
# of it
ERROR_BLOCKS = 32768
MAX_ERROR = 4096  # bytes at the end of ssh's output that are searched for its last line
LIMITED = ["sh", "-c", 'ulimit -f {} 2>/dev/null || :; exec "$@"'.format(ERROR_BLOCKS), "sh"]


def main():
    """Answer the request."""
    request = json.load(sys.stdin)
    with ThreadPoolExecutor(request["parallel"]) as pool:
        tries = [pool.submit(reach, peer, request["timeout_s"]) for peer in request["peers"]]
        for answered in as_completed(tries):
            print(json.dumps(answered.result()), flush=True)


def reach(peer, timeout_s):
    """Try SSH to one peer."""
    options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout={}".format(max(1, int(timeout_s)))]
    try:
        with tempfile.TemporaryFile() as errors:
            status = subprocess.run(
                [*LIMITED, "ssh", *options, "-p", str(peer["port"]), peer["address"], "true"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                timeout=timeout_s,
            ).returncode
            error = "" if status == 0 else ssh_error(status, errors)
    except subprocess.TimeoutExpired:
        error = "no answer within {:g} s".format(timeout_s)
    except OSError as failure:
        error = "ssh: {}".format(failure.strerror)
    return {"peer": peer["name"], "error": error}


def ssh_error(status, errors):
    """Return the last line that ssh printed, else its status."""
    if status == -signal.SIGXFSZ:
        return "output flood: ssh printed more than {} MiB of errors".format(ERROR_BLOCKS // 2048)
    errors.seek(-min(MAX_ERROR, errors.seek(0, 2)), 2)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "ssh exit status {}".format(status)


if __name__ == "__main__":
    main()
