"""Passes over rows: any number of threads and blocks sums the same rows, errors and interrupts end them."""

import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_info, threadpool_limits

from fairerclip.data import row_pass
from fairerclip.data.row_pass import cache_sized, map_rows, row_blocks, row_threads, single_blas, sum_rows
from fairerclip.solver.moments import Moments, MomentTable
from fairerclip.solver.terms import Attribute, LabelDesign, OneHot


class Listed:
    """Accumulator that keeps what it was given, in order."""

    def __init__(self):
        self.rows, self.columns, self.threads = [], [], set()

    def add(self, rows, *columns):
        self.rows += rows[:, 0].tolist()
        self.columns.append([len(column) for column in columns])
        self.threads.add(threading.get_ident())

    def merge(self, other):
        self.rows += other.rows
        self.threads |= other.threads


@pytest.fixture
def several(monkeypatch):
    """Let passes use as many threads as a test says, on any machine."""

    def use(threads, block_rows=7):
        monkeypatch.setattr(row_pass, "row_threads", lambda: threads)
        monkeypatch.setattr(row_pass, "LEAST_ROWS", 1)
        monkeypatch.setattr(row_pass, "BLOCK_ROWS", block_rows)

    return use


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 50])
def test_rows_arrive_once_and_in_order(several, threads, n):
    several(threads)
    X = np.arange(2.0 * n).reshape(n, 2)
    found = sum_rows(X, Listed, [np.arange(n)])
    assert_array_equal(found.rows, X[:, 0])
    assert len(found.threads) <= threads


def test_every_thread_gets_rows(several):
    several(3, block_rows=1000)
    assert [block.stop - block.start for block in row_blocks(30, threads=3)] == [10, 10, 10]
    started = threading.Barrier(3, timeout=10)

    class Meets(Listed):
        def add(self, rows, *columns):
            started.wait()  # passes only if three threads are here at the same time
            super().add(rows, *columns)

    assert len(sum_rows(np.zeros((30, 1)), Meets).threads) == 3


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_moments_and_tables_do_not_depend_on_threads(several, threads):
    rng = np.random.default_rng(0)
    n, D, c = 61, 5, 3
    Phi, y, s = rng.normal(size=(n, D)) + 3, rng.integers(c, size=n), rng.integers(2, size=n)
    labels = LabelDesign(y, c, (Attribute("s", OneHot(s, 2)),), rng.normal(size=(n, c)))
    w, part = rng.uniform(size=n), rng.integers(4, size=n)
    whole = Moments(D, labels.n_columns).update(Phi, labels.rows(slice(None)), w).finalise()
    several(threads)
    found = sum_rows(Phi, lambda: Moments(D, labels.n_columns), [labels, w]).finalise()
    for name in ("mean", "covariance", "cross", "trace", "weight"):
        assert_allclose(getattr(found, name), getattr(whole, name), rtol=1e-12, atol=1e-13)
    table = sum_rows(Phi, lambda: MomentTable(4, D, labels.n_columns), [labels, w, part])
    factors = rng.uniform(size=4)
    (combined,) = table.combine([factors])
    direct = Moments(D, labels.n_columns).update(Phi, labels.rows(slice(None)), w * factors[part]).finalise()
    for name in ("mean", "covariance", "cross", "trace", "weight"):
        assert_allclose(getattr(combined, name), getattr(direct, name), rtol=1e-11, atol=1e-12)


def test_results_per_row_come_in_the_order_of_the_rows(several):
    several(4)
    X, k = np.random.default_rng(0).normal(size=(45, 3)), np.arange(45)
    double, numbers = map_rows(X, lambda rows, column: (2 * rows, column + 1), [k])
    assert_array_equal(double, 2 * X)
    assert_array_equal(numbers, k + 1)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_in_any_thread_ends_the_pass(several, threads):
    several(threads)
    X = np.arange(70.0)[:, None]

    class Fails(Listed):
        def add(self, rows, *columns):
            if rows[-1, 0] == 69:
                raise ValueError("the last block")

    with pytest.raises(ValueError, match="the last block"):
        sum_rows(X, Fails)
    assert row_pass._LIMIT.depth == 0


def test_an_interrupt_stops_the_other_threads(several):
    several(2, block_rows=1)
    main, done = threading.get_ident(), []
    interrupted = threading.Event()

    class Interrupted(Listed):
        def add(self, rows, *columns):
            if threading.get_ident() == main:
                interrupted.set()
                raise KeyboardInterrupt
            interrupted.wait(10)
            done.append(len(rows))

    with pytest.raises(KeyboardInterrupt):
        sum_rows(np.zeros((10_000, 1)), Interrupted)
    assert len(done) < 5000


def test_blas_has_its_threads_again_after_nested_and_parallel_passes():
    def allowed():
        # Other tests may have loaded a library with a BLAS of its own, which passes over rows do not use.
        ours = {library.filepath for library in row_pass._blas().lib_controllers}
        return [library["num_threads"] for library in threadpool_info() if library["filepath"] in ours]

    with threadpool_limits(2, user_api="blas"):
        before = allowed()
        assert len(before) >= 1
        assert set(before) == {2}
        with single_blas():
            with single_blas():
                assert set(allowed()) == {1}
                assert row_threads() == 1
            assert set(allowed()) == {1}
        assert allowed() == before


def test_parts_that_fit_in_a_cache_cover_the_block():
    rows = np.zeros((1000, 700), dtype=np.float32)
    parts = list(cache_sized(rows))
    assert_array_equal(np.concatenate([np.arange(1000)[part] for part in parts]), np.arange(1000))
    assert all(rows[part].nbytes <= row_pass.CACHE_BYTES for part in parts)
    assert len(list(cache_sized(np.zeros((3, 10**6), dtype=np.float32)))) == 3
