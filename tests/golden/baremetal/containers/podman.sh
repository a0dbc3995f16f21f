#!/bin/sh
exec podman run \
    --name=seatrial-20260102-0304-abcde \
    --rm \
    --interactive \
    --pull=never \
    --network=host \
    --ipc=host \
    --uts=host \
    --user=0 \
    --entrypoint=sh \
    --cap-drop=ALL \
    --security-opt=no-new-privileges \
    --cap-add=CHOWN \
    --cap-add=DAC_OVERRIDE \
    --cap-add=FOWNER \
    --cap-add=NET_BIND_SERVICE \
    --cap-add=SETGID \
    --cap-add=SETUID \
    --cap-add=SYS_CHROOT \
    --cap-add=IPC_LOCK \
    --ulimit=memlock=-1:-1 \
    --ulimit=nofile=65536:65536 \
    --ulimit=stack=67108864:67108864 \
    --volume=/tmp/seatrial-20260102-0304-abcde:/tmp/seatrial-20260102-0304-abcde \
    --mount=type=bind,source=/data,target=/data,readonly \
    --mount=type=bind,source=/s,target=/mnt/s \
    --device=/dev/infiniband \
    --device=nvidia.com/gpu=all \
    registry.example.com/acceptance:1 -s <node.sh
