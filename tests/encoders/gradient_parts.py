"""Parts of the training of tokens, before any step."""

import numpy as np


def token_net(encoder, given, words):
    """The network, adversary and run of `PromptDebiasing` with two tokens."""
    from fairerclip.baselines.gradient.debiasing import Adversary, TokenNet
    from fairerclip.baselines.gradient.loop import Run
    from fairerclip.baselines.gradient.recipes import Recipe
    from fairerclip.baselines.training_data import Training
    from fairerclip.data.embedding_rows import unit_rows
    from fairerclip.encoders.prompt_tokens import TokenTower
    from fairerclip.inputs.prompts import prototypes

    X, s = given
    text = prototypes([encoder.encode_text(group) for group in words])
    ones = np.ones(len(X))
    data = Training(unit_rows(X), s, s, True, ones, 2, 2, text, None, None, None)
    net = TokenNet(text, 20.0, TokenTower.of(encoder), words, 2)
    run = Run(net, data, Recipe())
    return net, Adversary(run, data, 4, 0.1, 0, net.unchanged), run
