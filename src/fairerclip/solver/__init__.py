"""Solver of the paper's objective: its closed form, reduced from D×D to k×k, and Algorithm 1.

``moments`` (sums over rows) → ``terms`` (each Dep term as a low-rank factor) → ``lowrank`` or
``iterative`` (the reduction) → ``sides`` (the solution of one modality) → ``pairing`` (what one side
needs of the other) → ``alternation`` (Algorithm 1). ``dense`` is the slow, direct reference that the
tests compare with. Derivations: ``docs/math.md``.
"""
