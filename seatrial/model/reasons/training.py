"""Reasons of the training check."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "training-ranks-missing": Explanation(
        "{ranks} of {world_size} ranks took part",
        "The others were lost.",
        "Connectivity.",
    ),
    "parameters-differ": Explanation(
        "the ranks ended with different parameters: {odd}",
        "`corrupt`: all_reduce gave ranks different sums.",
        "That rank's node first; then the links.",
    ),
    "learned-too-little": Explanation(
        "{fell}, {drop} off, expected at least {min_loss_drop}",
        "`fail`: it trained, and learned too little.",
        "`min_loss_drop` with few `steps`; else as wrong numbers.",
    ),
    "training-not-finite": Explanation(
        "NaN or infinity {value}{first}",
        "`corrupt`: a GPU computes wrong, or data arrives wrong.",
        "Take that rank's node out; memory test (`dcgmi diag -r 3`).",
    ),
    "rank-loss-not-finite": Explanation(
        "the loss of rank {rank} was not finite, the others' was",
        "`corrupt`: a GPU computes wrong, or data arrives wrong.",
        "Take that rank's node out; memory test (`dcgmi diag -r 3`).",
    ),
    "rank-parameters-differ": Explanation(
        "rank {rank} ended with parameters {checksum}, the majority has others",
        "`corrupt`: all_reduce gave ranks different sums.",
        "That rank's node first; then the links.",
    ),
}
