"""The tables and figures of Dehdashtian et al. 2024 (arXiv:2403.15593), run again and set beside what was published.

`entries` lists them, each a module; `reproduce` runs some on a `task_source.TaskSource`: images in their official
layouts, task files, or simulated tasks. Published figures are in ``published.json``, each with where it stands.
"""
