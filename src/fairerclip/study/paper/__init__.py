"""Reproduction of the tables and figures of Dehdashtian et al. 2024 (arXiv:2403.15593), next to published figures.

`entries` lists the tables and figures, one module each; `reproduce` runs them on a `task_source.TaskSource`: images in
their official layouts, task files, or simulated tasks. ``published.json`` has published figures with their sources.
"""
