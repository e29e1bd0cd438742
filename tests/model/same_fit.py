"""One fit, for a test and for another process."""

from fairerclip import FairerCLIP
from fairerclip.data import simulate


def fitted():
    task = simulate("waterbirds", scale=0.05, width=48)
    return FairerCLIP(n_features=513, random_state=0).fit(
        task.train.X, task.train.y, text=task.text_target, sensitive_text=task.sensitive_attribute().text
    )
