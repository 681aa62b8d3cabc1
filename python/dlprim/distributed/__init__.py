"""Data-parallel training: the same program on several processes, with their gradients averaged.

Every rank holds the whole model and its own part of the batch. Gradients travel in buckets while
the backward pass still runs, and the sum of a bucket is taken in the order of the ranks, so that a
run repeats bit for bit, whatever the sizes of the buckets and however communication overlaps.

MPI is reached through mpi4py, which is imported by `Group.world` only, and only in a process that
an MPI launcher has started: alone everything here works without it, as a group of one.
"""

from dlprim.distributed.agreement import prepare_together, require_same_code
from dlprim.distributed.batch_norm import synchronize_batch_norm
from dlprim.distributed.data_parallel import DataParallel
from dlprim.distributed.failure import CollectiveError, end_job
from dlprim.distributed.group import Group, LauncherError

__all__ = [
    "CollectiveError",
    "DataParallel",
    "Group",
    "LauncherError",
    "end_job",
    "prepare_together",
    "require_same_code",
    "synchronize_batch_norm",
]
