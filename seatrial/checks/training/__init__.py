"""The check `training`: train a model over every rank; does it learn, do all ranks agree, who is slow or hangs?"""

from seatrial.model.reason import Explanation, register

REASONS = {
    "training-ranks-missing": Explanation(
        "{ranks} of {world_size} ranks took part",
        "Some ranks did not reach the end of the training.",
        "Run `seatrial explain` with the codes that the check connectivity has.",
    ),
    "training-steps-missing": Explanation(
        "the summary has {steps} steps, the output {seen}",
        "The summary claims steps that were not reported as they ended, so it is no result (`inconclusive`).",
        "Read `logs/training.log`, and run the training again by `seatrial run CLUSTER --only training`.",
    ),
    "rank-part-differs": Explanation(
        "the summary by rank 0 is not what rank {ranks} reports",
        "Each rank prints its own figures. The summary has others, or a rank printed none (`inconclusive`).",
        "Read `logs/training.log`, and run the training again by `seatrial run CLUSTER --only training`.",
    ),
    "parameters-differ": Explanation(
        "the ranks ended with different parameters: {odd}",
        "all_reduce gave the ranks different sums (`corrupt`).",
        "Run `dcgmi diag -r 3` on the node of the odd rank, then `seatrial run CLUSTER --only connectivity` for"
        " the links.",
    ),
    "sums-wrong": Explanation(
        "all_reduce by torch: {wrong} wrong elements on {bad} of {ranks} ranks, first in round {first} of {rounds}",
        "A GPU, a link or the network changed data (`corrupt`). Nothing was trained.",
        "Check the nodes of those ranks first, then the links. `seatrial probe all_reduce` runs the same by hand.",
    ),
    "rank-sums-wrong": Explanation(
        "rank {rank} received {wrong} wrong elements, first in round {first}, and most ranks received none",
        "The sum of the ranks' numbers arrived changed on this rank (`corrupt`).",
        "Run `dcgmi diag -r 3` on the node of that rank, then `seatrial run CLUSTER --only connectivity` for its"
        " links.",
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
    "training-hangs": Explanation(
        "a step does not end: {late}",
        "The ranks wait for each other, and what PyTorch's flight recorder holds names the one that is late.",
        "Run `py-spy dump --native --pid PID` on that rank: it shows the data loader, the file system or the GPU"
        " that it waits for.",
    ),
    "training-log-short": Explanation(
        "the log has {steps} steps of the {wanted} that the suite wants, read as {log}",
        "The command ended, and its log does not show that it trained.",
        "Look at its log in the run's folder; `log` says whose format it has, and `steps` how many must be there.",
    ),
    "training-interrupted": Explanation(
        "a rank was killed on purpose",
        "The suite's `interrupt` killed a rank; the training goes on from its last checkpoint.",
    ),
    "training-goodput": Explanation(
        "goodput {share} of {wall} s: {lost} s lost, {resume} s to resume, {reschedule} s to start again, {save} s to"
        " save",
        "The productive share of an interrupted training, by the formula of Google's Cluster Readiness Evaluation.",
    ),
    "checkpoint-differs": Explanation(
        "the checkpoint that was read back holds other numbers than were written",
        "The file system or a disk changed data (`corrupt`).",
        "Check the disks behind `checkpoint_dir`, then the memory of the nodes.",
    ),
    "replays-differ": Explanation(
        "the same steps from the same seed gave other bits: {ranks}",
        "Each rank trained alone three times; most got the same bits, and these did not (`corrupt`).",
        "Take the node of that rank out, and test its memory (`dcgmi diag -r 3`).",
    ),
    "replays-disagree": Explanation(
        "the same steps from the same seed gave different bits, and no majority agrees: {ranks}",
        "Software that does not compute deterministically looks like this too, so none is blamed.",
        "Use one version of PyTorch, driver and CUDA on all nodes, then run it again.",
    ),
    "rank-replays-differ": Explanation(
        "rank {rank} got other bits in {replays} of 3 replays",
        "A rank that trained alone computed something else than most ranks (`corrupt`).",
        "Take the node of that rank out, and test its memory (`dcgmi diag -r 3`).",
    ),
    "rank-sums-differ": Explanation(
        "rank {rank} computed right gradients and received wrong sums of them",
        "The gradients of all ranks had the same bits before they were summed: the transport changed data (`corrupt`).",
        "Run `seatrial run CLUSTER --only connectivity`, and `ibstat` on that rank's node for a link that is"
        " down or slow.",
    ),
    "rank-parameters-differ": Explanation(
        "rank {rank} ended with parameters {checksum}, the majority has others",
        "One rank has other parameters than the majority (`corrupt`).",
        "Run `dcgmi diag -r 3` on the node of that rank, then `seatrial run CLUSTER --only connectivity` for the"
        " links.",
    ),
}

register(REASONS)
