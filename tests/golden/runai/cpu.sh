runai \
    training \
    pytorch \
    submit \
    seatrial-20260102-0304-abcde \
    --project=infra \
    --image=registry.example.com/seatrial/acceptance-arm64:1 \
    --workers=1 \
    --command \
    -- \
    sleep \
    14400
# node: seatrial-20260102-0304-abcde-master-0
# node: seatrial-20260102-0304-abcde-worker-0
