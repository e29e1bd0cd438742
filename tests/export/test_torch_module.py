"""Models as torch modules: they answer as the package does, move, and keep gradients."""

import numpy as np
import pytest
from exported_models import KINDS, NAMES, NEW, SCORES, E, answers, model_of
from numpy.testing import assert_allclose

from fairerclip.baselines import LinearProbe
from fairerclip.errors import ExportError, ParameterError, ShapeError
from fairerclip.export import to_torch
from fairerclip.export.model_computation import parts_of

torch = pytest.importorskip("torch")


def outputs(module, rows):
    """Outputs of a module as arrays, by name; one tensor has the name None."""
    with torch.no_grad():
        found = module(torch.as_tensor(rows))
    return {name: t.numpy() for name, t in (found.items() if isinstance(found, dict) else [(None, found)])}


def assert_same_answers(module, model, part, rows, tolerance):
    found, true = outputs(module, rows), answers(model, part, rows)
    for name, values in true.items():
        got = found[name if part == "classifier" else None]
        assert_allclose(got, values, rtol=0, atol=tolerance * max(1.0, np.abs(values).max()))
    if part == "classifier":
        assert set(found) == {*true, "code"}
        assert np.mean(np.array(module.classes)[found["code"]] == model.predict(rows)) >= 0.9999


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_answers_as_in_the_package(kind):
    model = model_of(kind)
    for part in parts_of(model):
        assert_same_answers(to_torch(model, part=part), model, part, NEW, SCORES)
        wide = NEW.astype(np.float64)
        assert_same_answers(to_torch(model, part=part, dtype="float64"), model, part, wide, 1e-8)


def test_rows_in_half_precision_are_computed_in_float32_also_under_autocast():
    model = model_of("mitigator")
    module, rows = to_torch(model), torch.tensor(NEW)
    for dtype in (torch.float16, torch.bfloat16):
        found = module(rows.to(dtype))
        assert found.dtype == dtype
        assert_allclose(found.float(), module(rows.to(dtype).float()), atol=1e-2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_allclose(module(rows), model.transform(NEW), atol=1e-6)


def test_a_zero_row_is_answered_and_nan_is_never_hidden():
    rows = np.vstack([np.zeros_like(NEW[:1]), np.full_like(NEW[:1], np.nan), np.r_[np.inf, NEW[2, 1:]][None]])
    for kind in ("rbf, target, normalize=True", "nystroem, target, normalize=False", "adapter"):
        found = outputs(to_torch(model_of(kind)), rows)
        assert np.isfinite(found["scores"][0]).all()
        assert not np.isfinite(found["scores"][1:]).any()
        assert found["code"][0] >= 0
        assert found["code"].tolist()[1:] == [-1, -1]


@pytest.mark.parametrize("kind", ["rbf, target, normalize=True", "CLIP-Adapter", "mitigator, crossed"])
def test_gradients_reach_the_rows(kind):
    module = to_torch(model_of(kind), dtype="float64")
    rows = torch.tensor(NEW[:2], dtype=torch.float64, requires_grad=True)

    def answer(x):
        found = module(x)
        return found["scores"] if isinstance(found, dict) else found

    assert torch.autograd.gradcheck(answer, rows)
    assert not list(module.parameters())


def test_constants_stay_as_precise_as_the_package_needs_them():
    model = model_of("exact, prompts, normalize=True")
    module = to_torch(model)
    for change in (module.float, module.half, module.bfloat16, lambda: module.to("cpu")):
        assert_same_answers(change(), model, "classifier", NEW, SCORES)


def test_constants_that_float32_cannot_hold_are_refused():
    model = LinearProbe().fit(E.X, NAMES[E.y])
    model.coef_ = model.coef_ * 1e40
    module = to_torch(model, dtype="float64")
    assert np.isfinite(outputs(module, NEW.astype(np.float64))["scores"]).all()
    for change in (lambda: to_torch(model), module.float, module.half):
        with pytest.raises(ExportError, match="float32"):
            change()
    assert {buffer.dtype for buffer in module.buffers()} == {torch.float64}


def test_rows_of_another_shape_and_unknown_precisions_are_errors():
    with pytest.raises(ShapeError, match=r"\(2, 5\)"):
        to_torch(model_of("ZeroShot()"))(torch.zeros(2, 5))
    with pytest.raises(ParameterError, match="int8"):
        to_torch(model_of("ZeroShot()"), dtype="int8")
