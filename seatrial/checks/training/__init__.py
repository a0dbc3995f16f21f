"""The check `training`: train a small transformer over every rank; does it learn, and do all ranks end alike?"""

from seatrial.model.reason import Explanation, register

REASONS = {
    "training-ranks-missing": Explanation(
        "{ranks} of {world_size} ranks took part",
        "Some ranks did not reach the end of the training.",
        "Look at the reasons of the check connectivity.",
    ),
    "parameters-differ": Explanation(
        "the ranks ended with different parameters: {odd}",
        "all_reduce gave the ranks different sums (`corrupt`).",
        "Check the node of the odd rank first, then the links.",
    ),
    "sums-wrong": Explanation(
        "all_reduce by torch: {wrong} wrong elements on {bad} of {ranks} ranks, first in round {first} of {rounds}",
        "A GPU, a link or the network changed data (`corrupt`). Nothing was trained.",
        "Check the nodes of those ranks first, then the links. `seatrial probe all_reduce` runs the same by hand.",
    ),
    "rank-sums-wrong": Explanation(
        "rank {rank} received {wrong} wrong elements, first in round {first}, and most ranks received none",
        "The sum of the ranks' numbers arrived changed on this rank (`corrupt`).",
        "Check the node of that rank first, then its links.",
    ),
    "learned-too-little": Explanation(
        "{fell}, {drop} off, expected at least {min_loss_drop}",
        "The training ran, and the loss fell too little.",
        "With few `steps`, lower `min_loss_drop`; else look for wrong numbers.",
    ),
    "training-not-finite": Explanation(
        "NaN or infinity {value}{first}",
        "A GPU computes wrongly, or data arrives wrong (`corrupt`).",
        "Take the node of that rank out, and test its memory (`dcgmi diag -r 3`).",
    ),
    "rank-loss-not-finite": Explanation(
        "the loss of rank {rank} was not finite, the others' was",
        "The numbers of one rank are not finite, those of the others are (`corrupt`).",
        "Take the node of that rank out, and test its memory (`dcgmi diag -r 3`).",
    ),
    "rank-parameters-differ": Explanation(
        "rank {rank} ended with parameters {checksum}, the majority has others",
        "One rank has other parameters than the majority (`corrupt`).",
        "Check the node of that rank first, then the links.",
    ),
}

register(REASONS)
