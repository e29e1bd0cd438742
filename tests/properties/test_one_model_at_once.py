"""One model used by many threads and processes at once gives the answers that it gives alone."""

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import fairerclip
from fairerclip import EmbeddingMitigator, FairerCLIP, baselines
from sample_rows import Embeddings

E = Embeddings(seed=1, n=300, p=16, correlation=0.5)
INPUTS = [
    Embeddings(seed=1, n=n, p=16, correlation=0.5).X[start:].astype(dtype)
    for n in (40, 300, 1000)
    for start in (0, 7)
    for dtype in (np.float16, np.float32, np.float64)
]
"""Rows of several numbers and precisions: constants of a model are converted when a precision first occurs."""
FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
"""Python 3.12 and newer warn of a fork while threads run, which these tests are about."""
MODELS = ("FairerCLIP", "EmbeddingMitigator", "LEACE")


def fitted(name):
    if name == "EmbeddingMitigator":
        return EmbeddingMitigator().fit(E.X, sensitive_features=E.s)
    if name == "LEACE":
        return baselines.LEACE().fit(E.X, text=E.text, sensitive_features=E.s)
    model = FairerCLIP(tau=0.5, gamma=1e-3, n_features=60, class_offsets=None, random_state=0)
    return model.fit(E.X, E.y, sensitive_features=E.s, text=E.text)


def answers(model, X):
    """All that a model says of some rows."""
    if isinstance(model, EmbeddingMitigator):
        ranking = model.rank(E.text[0], X)
        return [model.transform(X), model.scores(X, E.text), *ranking]
    found = [model.predict(X), model.scores(X), model.transform(X)]
    return found + (list(model.rank(1, X)) if isinstance(model, FairerCLIP) else [])


def same(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert_array_equal(a, b)


@pytest.mark.parametrize("name", MODELS)
def test_threads_that_share_a_model_get_the_answers_of_one(name):
    alone = fitted(name)
    expected = [answers(alone, X) for X in INPUTS]
    shared = fitted(name)  # it has answered nothing yet
    threads = 8
    begin = threading.Barrier(threads)

    def work(turn):
        begin.wait(timeout=60)
        order = np.random.default_rng(turn).permutation(len(INPUTS))
        return [(k, answers(shared, INPUTS[k])) for k in order]

    with ThreadPoolExecutor(threads) as pool:
        for found in pool.map(work, range(threads)):
            for k, answer in found:
                same(answer, expected[k])


def loaded_answers(folder):
    """Called in another process."""
    model = fairerclip.load(folder)
    return [answers(model, X) for X in INPUTS[:6]]


@FORKS
@pytest.mark.linux
@pytest.mark.slow
def test_processes_that_load_a_folder_at_once_answer_alike(tmp_path):
    folders = [fitted(name).save(tmp_path / name) for name in ("FairerCLIP", "EmbeddingMitigator")] * 2
    expected = [loaded_answers(folder) for folder in folders]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        for found, there in zip(pool.map(loaded_answers, folders, timeout=200), expected, strict=True):
            for a, b in zip(found, there, strict=True):
                same(a, b)


@FORKS
@pytest.mark.linux
@pytest.mark.parametrize("name", ["FairerCLIP", "EmbeddingMitigator"])
def test_a_child_of_a_process_that_has_answered_answers_too(name):
    """Pools of threads and of BLAS do not survive a fork: a model must not wait for those of its parent."""
    model = fitted(name)
    X = np.tile(E.X, (200, 1))  # enough rows for a pass in threads
    expected = answers(model, X)
    parent, child = multiprocessing.get_context("fork").Pipe()
    process = multiprocessing.get_context("fork").Process(
        target=lambda: child.send(
            [bool(np.array_equal(a, b)) for a, b in zip(answers(model, X), expected, strict=True)]
        )
    )
    process.start()
    try:
        assert parent.poll(120), "the child gives no answer"
        assert all(parent.recv())
    finally:
        process.kill()
        process.join()
