"""Try SSH from this node to its peers, many at once; one JSON line per peer as it is known.

Standard input: {"peers": [{"name", "address", "port"}], "timeout_s": seconds, "parallel": count}
Output lines:   {"peer": name, "error": last line that ssh printed, "" where it worked}
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def main():
    request = json.load(sys.stdin)
    with ThreadPoolExecutor(request["parallel"]) as pool:
        for answer in pool.map(lambda peer: reach(peer, request["timeout_s"]), request["peers"]):
            print(json.dumps(answer), flush=True)


def reach(peer, timeout_s):
    options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout={}".format(max(1, int(timeout_s)))]
    try:
        done = subprocess.run(
            ["ssh", *options, "-p", str(peer["port"]), peer["address"], "true"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=timeout_s,
        )
        error = "" if done.returncode == 0 else last_line(done.stderr) or "ssh exit status {}".format(done.returncode)
    except subprocess.TimeoutExpired:
        error = "no answer within {:g} s".format(timeout_s)
    except OSError as failure:
        error = "ssh: {}".format(failure.strerror)
    return {"peer": peer["name"], "error": error}


def last_line(output):
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


if __name__ == "__main__":
    main()
