"""A stand-in for perftest's programs where there is no RDMA: the same options and text, over TCP.

    ib_write_bw [OPTIONS] [SERVER]

What it prints is what perftest 4.5 prints. The bytes are real: the client sends them to the server
(ib_read_bw: receives them; -b: both), so that a link that is shaped shows. Only a test that puts it
on nodes runs it.
"""

import argparse
import os
import socket
import sys
import threading
import time

CHUNK = 1 << 16
TESTS = {
    "ib_write_bw": "RDMA_Write",
    "ib_read_bw": "RDMA_Read",
    "ib_send_bw": "Send",
    "ib_write_lat": "RDMA_Write",
}
OPTIONS = """Usage:
  {0}            start a server and wait for connection
  {0} <host>     connect to server at <host>
      --report_gbits Report Max/Average BW of test in Gbit/sec (instead of MiB/sec)
{1}"""


def main() -> None:
    name = os.path.basename(sys.argv[0])
    if "--help" in sys.argv:
        print(OPTIONS.format(name, os.environ.get("STAND_IN_OPTIONS", "")))
        return
    options = parsed()
    print_head(name, options)
    if options.server:
        with socket.create_connection((options.server, options.port)) as peer:
            run(name, options, peer)
    else:
        with socket.create_server(("0.0.0.0", options.port)) as listener:
            peer, _ = listener.accept()
            with peer:
                run(name, options, peer)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for short, kind in {
        "-d": str,
        "-p": int,
        "-s": int,
        "-q": int,
        "-D": int,
        "-f": int,
        "-n": int,
        "-x": int,
    }.items():
        parser.add_argument(short, type=kind, dest=short.strip("-"))
    for flag in ("-F", "-b", "--report_gbits", "--data_validation", "--use_cuda_dmabuf"):
        parser.add_argument(flag, action="store_true", dest=flag.strip("-"))
    parser.add_argument("--use_cuda", type=int)
    parser.add_argument("server", nargs="?")
    options = parser.parse_args()
    options.port = options.p
    return options


def print_head(name: str, options: argparse.Namespace) -> None:
    if not options.server:
        print(
            "\n************************************\n* Waiting for client to connect... *\n"
            + "*" * 36,
            flush=True,
        )
    kind = "Latency" if name.endswith("lat") else "Bidirectional BW" if options.b else "BW"
    print("-" * 87)
    print(f"                    {TESTS[name]} {kind} Test")
    print(f" Dual-port       : OFF\t\tDevice         : {options.d}")
    print(f" Number of qps   : {options.q or 1}\t\tTransport type : IB")
    print(
        " local address: LID 0000 QPN 0x0011 PSN 0xa1b2c3\n GID: "
        "00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:01"
    )


def run(name: str, options: argparse.Namespace, peer: socket.socket) -> None:
    print(" remote address: LID 0000 QPN 0x0011 PSN 0xa1b2c3", flush=True)
    if name.endswith("lat"):
        latency(options, peer)
    else:
        bandwidth(name, options, peer)


def bandwidth(name: str, options: argparse.Namespace, peer: socket.socket) -> None:
    sends = options.b or bool(options.server) == (name != "ib_read_bw")
    receives = options.b or not sends
    received = [0]
    reader = threading.Thread(target=receive, args=(peer, received))
    began = time.monotonic()
    if receives:
        reader.start()
    if sends:
        block = bytes(CHUNK)
        while time.monotonic() - began < options.D:
            peer.sendall(block)
        peer.shutdown(socket.SHUT_WR)
    if receives:
        reader.join()
    seconds = time.monotonic() - began
    if receives:  # the receiver counts what arrived, and says so as perftest's ends do
        peer.sendall(received[0].to_bytes(8, "big")) if not options.b else None
    else:
        received[0] = int.from_bytes(peer.recv(8, socket.MSG_WAITALL), "big")
    gbits = received[0] * 8 / 1e9 / seconds * (2 if options.b else 1)
    print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
    print(
        f" {options.s:<7}    {received[0] // options.s + 1:<10}       0.00            "
        f"{gbits:<7.3f}\t\t     0.005"
    )
    print("-" * 87, flush=True)


def receive(peer: socket.socket, received: list[int]) -> None:
    while data := peer.recv(CHUNK):
        received[0] += len(data)


def latency(options: argparse.Namespace, peer: socket.socket) -> None:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    times = []
    for _ in range(options.n):
        began = time.perf_counter()
        if options.server:
            peer.sendall(b"xx")
        peer.recv(2, socket.MSG_WAITALL)
        if not options.server:
            peer.sendall(b"xx")
        times.append((time.perf_counter() - began) * 1e6 / 2)
    times.sort()
    typical = times[len(times) // 2]
    print(
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    "
        "t_avg[usec]    t_stdev[usec]"
    )
    row = [
        options.s,
        options.n,
        *(f"{value:.2f}" for value in (times[0], times[-1], typical, typical, 0.0)),
    ]
    print("  ".join(map(str, row)))


if __name__ == "__main__":
    main()
