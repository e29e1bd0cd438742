"""Zero-shot classification: the class whose prompt is nearest by cosine."""

from __future__ import annotations

from fairerclip.baselines.baseline import Needs, Training
from fairerclip.baselines.heads import CosineHead, class_prompts


class ZeroShot(CosineHead):
    """CLIP as it is: the class whose prompts are nearest by cosine.

    Needs class prompts; takes no labels and no sensitive values, and mitigates nothing. What all else is compared
    with.

    Attributes
    ----------
    text_ : (c, p) one unit vector per class: its prompts normalised, averaged and normalised.

    Notes
    -----
    Differs from the tables of FairerCLIP in nothing for one prompt per class; several are averaged, as Radford et
    al. do.

    References
    ----------
    Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", 2021, arXiv:2103.00020.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.array([[2.0, 0.1], [0.0, 1.0]])
    >>> ZeroShot().fit(images, text={"cat": [1.0, 0.0], "dog": [0.0, 1.0]}).predict(images).tolist()
    ['cat', 'dog']
    """

    needs = Needs("none", True, False, False, "Radford et al. 2021, arXiv:2103.00020")

    def _learn(self, data: Training) -> None:
        self.text_ = class_prompts(data, "ZeroShot")
