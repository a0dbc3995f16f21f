#!/bin/sh
exec singularity exec \
    --rocm \
    --bind=/tmp/seatrial-20260102-0304-abcde:/tmp/seatrial-20260102-0304-abcde \
    /images/acceptance.sif \
    sh -s <node.sh
