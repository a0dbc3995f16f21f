runai \
    training \
    mpi \
    submit \
    seatrial-20260102-0304-abcde \
    --project=infra \
    --image=registry.example.com/seatrial/acceptance-arm64:1 \
    --workers=3 \
    --gpu-devices-request=4 \
    --slots-per-worker=4 \
    --node-pools=gh200 \
    --large-shm \
    --capability=IPC_LOCK \
    --extended-resource=rdma/rdma_shared_device_a=4 \
    --command \
    -- \
    sleep \
    14400
# node: seatrial-20260102-0304-abcde-worker-0
# node: seatrial-20260102-0304-abcde-worker-1
# node: seatrial-20260102-0304-abcde-worker-2
