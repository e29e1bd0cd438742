"""Plain definitions of the terms that pages use."""

from __future__ import annotations

from fairerclip.metrics.names import AUC, FIGURES, RETRIEVAL

GLOSSARY: dict[str, str] = {
    "Zero-shot": "The model as it is: an image gets the class whose description is most similar. No training.",
    "Mitigated model": (
        "A model that was trained to depend less on the sensitive attribute. It lowers bias and does not remove it."
    ),
    "S, sensitive attribute": "What an answer should not depend on, such as sex. Ŝ is S predicted from prompts.",
    "Group": "All rows of one class with one value of S, such as blond men.",
    FIGURES["average"].short: "Average accuracy: the share of right answers over all rows.",
    FIGURES["worst_group"].short: (
        "Worst-group accuracy: the share of right answers in the group where it is lowest."
    ),
    FIGURES["gap"].short: "Average minus worst group, in percentage points. Lower is better.",
    FIGURES["eod"].short: (
        "Equal opportunity difference: how much the share of right answers on one class differs between values of "
        "S, in percentage points. Lower is better."
    ),
    RETRIEVAL["max_skew"].short: (
        "How over-represented the most favoured group is among the first results: the logarithm of its share there "
        "divided by its share of all rows. 0 is in proportion; 0.1 is about 10 % too often."
    ),
    RETRIEVAL["ndkl"].short: (
        "Distance of the whole order of results from an order in proportion; 0 is in proportion."
    ),
    RETRIEVAL["kl"].short: (
        "Kullback-Leibler divergence: how far the shares of groups among the first results are from their shares of "
        "all rows. 0 is in proportion."
    ),
    RETRIEVAL["bias"].short: (
        "Of two groups among the first results: the difference of their numbers over their sum. 0 is equal numbers, 1 "
        "and −1 are one group alone."
    ),
    AUC["overall"].short: (
        "How well scores separate a class from the others: how often a row of the class has a higher score than "
        "another row. 50 % is chance."
    ),
    "Interval": (
        "Range in brackets. One of 95 % would hold the true figure in 95 of 100 such tests. A change is clear if its "
        "interval does not hold 0, allowing for the number of groups."
    ),
    "Not told apart": "Too few rows to say which of two methods is better: the interval of their difference holds 0.",
    "Target labels": "The right class of each training row.",
    "Sensitive labels": "The value of S of each training row.",
    "τ": "Strength of mitigation, from 0 (none) to below 1.",
    "τ_z": "How strongly images and prompts are kept aligned, from 0 to below 1.",
    "λ_eff": "Effective strength of mitigation, computed from τ and τ_z.",
    "Front": "Settings that no other setting beats in both average and worst group.",
    "Modality gap": "Images and texts lie in different parts of a CLIP model's space, so their distance has an offset.",
    "Probe": "A classifier that tries to predict S from embeddings. At the level of chance it finds nothing.",
    "HSIC, Dep, KCC": "Measures of dependence between two quantities; 0 is independent.",
}
"""Definitions by term."""
