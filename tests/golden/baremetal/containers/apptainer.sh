#!/bin/sh
exec apptainer exec \
    --nv \
    --bind=/scratch/seatrial-20260102-0304-abcde:/scratch/seatrial-20260102-0304-abcde \
    --bind=/data:/data:ro \
    --bind=/s:/mnt/s \
    /images/acceptance.sif \
    sh -s <node.sh
