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
    --volume=/tmp/seatrial-20260102-0304-abcde:/tmp/seatrial-20260102-0304-abcde \
    --device=/dev/kfd \
    --device=/dev/dri \
    registry.example.com/acceptance:1 -s <node.sh
