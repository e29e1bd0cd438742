"""The paper's closed form, reduced from D×D to k×k, and Algorithm 1 around it.

``moments`` (sums over rows) → ``terms`` (each Dep term as a low-rank factor) → ``lowrank`` or
``iterative`` (the reduction) → ``sides`` (one modality, solved) → ``alternation`` (Algorithm 1).
``dense`` is the slow, obvious reference that the tests compare with. Derivations: ``docs/math.md``.
"""
