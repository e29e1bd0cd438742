"""What holds for every kernel."""

import pickle

import numpy as np
import pytest

from fairerclip.errors import ModelFileError, ParameterError, ShapeError
from fairerclip.features import KERNELS, array_names, features_from_arrays, make_features
from fairerclip.features.feature_map import check_map_bytes

X = np.random.RandomState(0).normal(size=(40, 6))
X.flags.writeable = False
WIDTHS = {"rbf": 9, "orthogonal": 9, "nystroem": 9, "exact": 40, "linear": 6}

every_kernel = pytest.mark.parametrize("kernel", KERNELS)


def make(kernel, rows=X, *, n_features=9, bandwidth="median", sample_weight=None, random_state=0):
    return make_features(
        kernel,
        rows,
        n_features=n_features,
        bandwidth=bandwidth,
        sample_weight=sample_weight,
        random_state=random_state,
    )


@every_kernel
def test_map_says_its_kernel_and_its_widths(kernel):
    phi = make(kernel)
    assert (phi.kernel, phi.n_features_in, phi.n_features) == (kernel, 6, WIDTHS[kernel])
    assert phi.transform(X).shape == (40, WIDTHS[kernel])
    assert set(array_names(kernel)) == set(phi.to_arrays())


@every_kernel
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
def test_precision_of_features_is_that_of_rows(kernel, dtype):
    Phi = make(kernel).transform(np.round(X).astype(dtype))
    assert Phi.dtype == (np.float32 if dtype in (np.float16, np.float32) else np.float64)


@every_kernel
def test_dtype_of_rows_does_not_change_the_map(kernel):
    rows = np.repeat(X, 30, axis=0).astype(np.float16)  # more than the bandwidth's sample
    other = make(kernel, rows.astype(np.float64)).to_arrays()
    for name, array in make(kernel, rows).to_arrays().items():
        np.testing.assert_array_equal(array, other[name])


@every_kernel
@pytest.mark.parametrize("generator", [int, np.random.RandomState, np.random.default_rng])
def test_one_seed_gives_one_map_and_generators_move_on(kernel, generator):
    rng = generator(3)
    first, second = (make(kernel, random_state=rng).transform(X) for _ in range(2))
    np.testing.assert_array_equal(first, make(kernel, random_state=generator(3)).transform(X))
    if generator is not int and kernel not in ("exact", "linear"):
        assert np.abs(first - second).max() > 0.01


@every_kernel
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_saved_map_transforms_bit_for_bit_alike(kernel, order, dtype):
    phi = make(kernel)
    arrays = phi.to_arrays()
    assert all(isinstance(array, np.ndarray) and array.dtype == np.float64 for array in arrays.values())
    assert all(array.flags.c_contiguous for array in arrays.values())
    copied = {name: np.array(a, order=order) for name, a in arrays.items()}
    loaded = features_from_arrays(phi.kernel, copied)
    assert (loaded.kernel, loaded.n_features) == (phi.kernel, phi.n_features)
    np.testing.assert_array_equal(loaded.transform(X.astype(dtype)), phi.transform(X.astype(dtype)))
    assert loaded.to_arrays().keys() == arrays.keys()
    twin = pickle.loads(pickle.dumps(phi))  # noqa: S301
    np.testing.assert_array_equal(twin.transform(X), phi.transform(X))


@every_kernel
def test_damaged_arrays_are_refused(kernel):
    arrays = make(kernel).to_arrays()
    for name, array in arrays.items():
        with_hole = array.copy()
        with_hole.flat[-1] = np.nan
        rest = {key: value for key, value in arrays.items() if key != name}
        damaged = (
            [array.astype(np.float16), with_hole, array[..., None, None], array[:0]]
            if (array.ndim)
            else [np.array(-1.0), np.array(0.0), np.array(np.inf), np.ones(2), np.array(1)]
        )
        with pytest.raises(ModelFileError):
            features_from_arrays(kernel, rest)
        for wrong in damaged:
            with pytest.raises(ModelFileError):
                features_from_arrays(kernel, {**rest, name: wrong})


@pytest.mark.parametrize(("kernel", "name"), [("rbf", "offset"), ("exact", "landmarks")])
def test_arrays_that_do_not_fit_each_other_are_refused(kernel, name):
    arrays = make(kernel).to_arrays()
    with pytest.raises(ModelFileError):
        features_from_arrays(kernel, {**arrays, name: arrays[name][1:]})


@every_kernel
@pytest.mark.parametrize("shape", [(3, 5), (6,), (1, 3, 6)])
def test_rows_of_another_width_are_refused(kernel, shape):
    with pytest.raises(ShapeError):
        make(kernel).transform(np.ones(shape))


@every_kernel
@pytest.mark.parametrize("shape", [(6,), (0, 6), (6, 0)])
def test_fit_refuses_what_are_no_rows(kernel, shape):
    with pytest.raises(ShapeError):
        make(kernel, np.ones(shape))


@every_kernel
@pytest.mark.parametrize("options", [{"n_features": 0}, {"n_features": 2.0}, {"bandwidth": "mode"}])
def test_parameters_are_checked_whether_used_or_not(kernel, options):
    with pytest.raises(ParameterError):
        make(kernel, **options)


@pytest.mark.parametrize("random_state", ["seed", -1, 1.5])
def test_bad_random_state_is_refused(random_state):
    with pytest.raises(ParameterError):
        make("rbf", random_state=random_state)


@every_kernel
def test_weights_are_passed_on(kernel):
    with pytest.raises(ShapeError):
        make(kernel, sample_weight=np.ones(3))
    w = np.arange(40.0) ** 3
    name = "scale" if kernel == "linear" else "bandwidth"
    weighted, plain = (make(kernel, sample_weight=sw).to_arrays()[name] for sw in (w, None))
    assert weighted != pytest.approx(plain, rel=1e-4)


@pytest.mark.parametrize("kernel", ["rff", None, ["rbf"]])
def test_unknown_kernel_is_refused(kernel):
    for call in (make, lambda k: features_from_arrays(k, {})):
        with pytest.raises(ParameterError):
            call(kernel)


def test_a_map_of_eight_gibibytes_is_the_largest():
    check_map_bytes(32_768, 32_768)
    with pytest.raises(ParameterError):
        check_map_bytes(32_768, 32_769)
