"""Zero-shot classification of mitigated embeddings."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip import EmbeddingMitigator, load
from fairerclip.baselines.mitigated_zero_shot import MitigatedZeroShot
from fairerclip.data.embedding_rows import unit_rows


def test_it_predicts_the_class_with_the_largest_inner_product_and_saves_the_mitigator(embeddings, tmp_path):
    e = embeddings(n=300)
    fairer = EmbeddingMitigator().fit(e.X, sensitive_features=e.s)
    model = MitigatedZeroShot.of(fairer, {"cat": e.text[0], "dog": e.text[1:]})
    expected = fairer.transform(e.X) @ unit_rows(e.text).T
    assert_allclose(model.scores(e.X), expected, atol=1e-12)
    assert_array_equal(model.predict(e.X), np.array(["cat", "dog"])[expected.argmax(axis=1)])
    assert_allclose(model.transform(e.X), fairer.transform(e.X), atol=1e-14)
    back = load(model.save(tmp_path / "m"))
    assert isinstance(back, EmbeddingMitigator)
    assert_array_equal(back.transform(e.X), fairer.transform(e.X))
