#!/bin/sh
# HealthCheckProgram and Prolog of slurmd: one line, 0 for a healthy node and 1 for a faulty one.
exec timeout --kill-after=2 12 python3 /opt/seatrial/check.pyz --fast slurm --gpus 8 --ports 8
