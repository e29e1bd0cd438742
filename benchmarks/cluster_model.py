"""Cost model of a fit on a cluster: passes, bytes read and moved, memory of a worker, time on so many machines.

``python benchmarks/cluster_model.py --gflops RATE`` prints the table of docs/benchmarks/scaling.md from a rate of
one core, which ``benchmarks/cluster.py`` measures and checks the model with.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

from fairerclip.data.distribution import _part_rows

PASSES = 4
"""Passes over the rows of a fit with known parameters and prompts: check, zero-shot values of S, zero-shot scores of
the classes, moments."""
LABEL_BYTES = 4 + 4 + 8 + 2 * 4
"""Bytes per row that are sent with the pass of the moments: class, sensitive value, weight, scores of two classes."""
RESULT_BYTES = 8 + (4 + 4) + 2 * 4
"""Bytes per row that come back: length, zero-shot value and margin, scores of two classes."""
BLOCK_BYTES = 30 << 20


@dataclass(frozen=True)
class Shape:
    """Numbers of rows n, of their width p, and of features D; bytes of a number on disk."""

    rows: int
    width: int
    features: int
    itemsize: int = 2

    @property
    def flops(self) -> float:
        """Multiplications and additions of a fit: features, moments, and one Cholesky."""
        per_row = 2 * self.width * self.features + 2 * self.features**2 + 2 * PASSES * self.width
        return self.rows * per_row + self.features**3 / 3


@dataclass(frozen=True)
class Machine:
    """Rate of a core in a fit, and rates of disk and network of a machine in bytes per second."""

    flops: float
    disk: float = 1e9
    network: float = 1.25e9

    @classmethod
    def measured(cls, shape: Shape, seconds: float, cores: int) -> Machine:
        """Return the rate of a core that a fit of this shape had; its reading counts as a part of it."""
        return cls(shape.flops / seconds / cores)


@dataclass(frozen=True)
class Estimate:
    """What a fit needs on a cluster."""

    parts: int
    read: float
    """Bytes read, by all machines together."""
    merged: float
    """Bytes of sums that are moved between workers, at most."""
    columns: float
    """Bytes of labels and of results per row that are moved between the client and the workers."""
    memory: float
    """Bytes of a worker with one thread: its sums, two that are merged, and blocks of rows and features."""
    client_memory: float
    """Bytes of labels, weights and scores in the client, and of the columns in the scheduler."""
    seconds: float


def estimate(shape: Shape, machine: Machine, machines: int, cores: int) -> Estimate:
    """Return what a fit needs on so many machines with so many cores each; one worker thread on each core."""
    threads = machines * cores
    parts = -(-shape.rows // _part_rows(shape.rows, threads))
    rounds = -(-parts // threads)  # the slowest thread has this many parts
    share = rounds * (shape.rows / parts)  # rows of the slowest thread
    read = PASSES * shape.rows * shape.width * shape.itemsize
    sums = 8 * shape.features**2
    # Sums of neighbouring parts are on one machine: what crosses the network is one sum of each machine, at each level.
    merged = sums * max(0, machines - 1)
    columns = shape.rows * (LABEL_BYTES + RESULT_BYTES)
    work = shape.flops * (share / shape.rows) / machine.flops
    reading = PASSES * share * cores * shape.width * shape.itemsize / machine.disk
    merging = math.ceil(math.log2(max(1, machines))) * sums / machine.network
    sending = columns / machine.network if machines > 1 else 0.0
    return Estimate(
        parts,
        float(read),
        float(merged),
        float(columns),
        3 * sums + 3 * BLOCK_BYTES,
        float(shape.rows * (LABEL_BYTES + RESULT_BYTES) + shape.rows * LABEL_BYTES),
        max(work, reading) + merging + sending,
    )


def printed(machine: Machine, rows: int = 400_000_000) -> str:
    """Return the table for 400 million rows as Markdown."""
    lines = [
        "| rows × p, D | passes | read | sums moved | columns moved | memory of a worker | "
        f"{' | '.join(f'{m} machines' for m in (1, 8, 32))} |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for width in (512, 768):
        for features in (1000, 3000):
            shape = Shape(rows, width, features)
            found = [estimate(shape, machine, machines, 16) for machines in (1, 8, 32)]
            last = found[-1]
            times = " | ".join(_time(e.seconds) for e in found)
            lines.append(
                f"| {rows / 1e6:.0f} M × {width}, {features} | {PASSES} | {last.read / 1e12:.1f} TB | "
                f"{last.merged / 1e9:.1f} GB | {last.columns / 1e9:.0f} GB | {last.memory / 1e6:.0f} MB | {times} |"
            )
    return "\n".join(lines)


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gflops", type=float, required=True, help="rate of one core in a fit, in GFLOP/s")
    print(printed(Machine(parser.parse_args().gflops * 1e9)))
