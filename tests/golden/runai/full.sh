runai \
    training \
    mpi \
    submit \
    seatrial-20260102-0304-abcde \
    --project=infra \
    --image=registry.example.com/seatrial/acceptance-arm64:1 \
    --workers=3 \
    --gpu-devices-request=4 \
    --slots-per-worker=2 \
    --node-pools=gh200 \
    --large-shm \
    --capability=IPC_LOCK \
    --capability=SYS_PTRACE \
    --extended-resource=rdma/rdma_shared_device_a=4 \
    --extended-resource=rdma/rdma_shared_device_b=2 \
    --node-type=gh200 \
    --image-pull-policy=IfNotPresent \
    --existing-pvc=claimname=data,path=/data \
    --command \
    -- \
    sleep \
    600
# node: seatrial-20260102-0304-abcde-worker-0
# node: seatrial-20260102-0304-abcde-worker-1
# node: seatrial-20260102-0304-abcde-worker-2
