"""`fairerclip fit --method embedding`."""

import numpy as np
import pytest

import fairerclip
from fairerclip import EmbeddingMitigator

pytestmark = pytest.mark.slow


def test_a_strength_is_chosen_and_the_mitigator_of_python_is_saved(run, document, gallery, tmp_path):
    fit = ("fit", gallery, "--method", "embedding", "--sensitive", "sex", "--objective", "max_skew", "-o")
    found = document(*fit, tmp_path / "m", "--floor", 0.9)
    mitigator = fairerclip.load(tmp_path / "m")
    assert (found["key"], found["strength"]) == ("embedding", {"sex": mitigator.strength})
    assert mitigator.diagnostics_["tuning"]["strength"] == mitigator.strength
    assert len(found["path"]) == 10
    code, out, err = run(*fit, tmp_path / "m", "--floor", 0.9, "--overwrite", "--verbose")
    assert (code, err) == (0, "")
    assert "→" in out


def test_several_attributes_and_parameters_are_those_of_python(document, gallery, tmp_path):
    given = ("--sensitive", "sex,race", "--labels", "all", "--set", "unit=True", "--strength", 0.25)
    document("fit", gallery, "-o", tmp_path / "m", "--method", "embedding", *given)
    mitigator, faces = fairerclip.load(tmp_path / "m"), fairerclip.data.load_task(gallery)
    assert (mitigator.unit, mitigator.strength) == (True, 0.25)
    known = {name: np.array(one.names)[faces.train.s[name]] for name, one in faces.sensitive.items()}
    text = {name: dict(zip(one.names, one.text, strict=True)) for name, one in faces.sensitive.items()}
    expected = EmbeddingMitigator(unit=True, strength=0.25)
    expected.fit(faces.train.X, sensitive_features=known, sensitive_text=text)
    np.testing.assert_allclose(mitigator.transform(faces.test.X), expected.transform(faces.test.X), atol=1e-5)
