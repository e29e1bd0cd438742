"""Joined calls give each request the results of its own rows, and a request cannot spoil another one."""

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from service_client import NPY, UnixConnection, npy, wait_until

from fairerclip.serving.micro_batches import MicroBatches, Operation
from fairerclip.serving.problems import RequestProblem


def run(work, **given):
    """Run a coroutine function of a queue, and return what it gives and the calls that were made."""
    calls = []

    async def main():
        limits = {"queue": 1000, "rows": 10, "seconds": 0.05, **given}
        batches = MicroBatches(
            "test", asyncio.get_running_loop(), observe=lambda *call: calls.append(call[:3]), **limits
        )
        try:
            return await work(batches)
        finally:
            batches.stop()

    return asyncio.run(main()), calls


def test_requests_are_joined_and_each_gets_its_own_rows():
    double = Operation("double", lambda rows: 2 * rows)
    sizes = [3, 1, 4, 1, 5, 9, 2, 6, 20, 1]
    sent = [np.arange(100 * k, 100 * k + n, dtype=float)[:, None] for k, n in enumerate(sizes)]

    async def work(batches):
        return await asyncio.gather(*(batches.run(double, rows) for rows in sent))

    found, calls = run(work)
    for rows, answer in zip(sent, found, strict=True):
        np.testing.assert_array_equal(answer, 2 * rows)
    assert sum(rows for _, rows, _ in calls) == sum(sizes)
    assert sum(requests for _, _, requests in calls) == len(sizes)
    assert len(calls) < len(sizes)
    assert all(rows <= 10 or requests == 1 for _, rows, requests in calls)


def test_types_shapes_and_operations_are_not_mixed():
    seen = []

    def keep(rows):
        seen.append((rows.dtype, rows.shape[1:]))
        return rows

    first, second = Operation("first", keep), Operation("second", keep)
    texts = Operation("texts", lambda rows: np.array([len(text) for text in rows]))
    alone = Operation("alone", lambda rows: rows, joins=False)
    kinds = [np.ones((2, 3), np.float32), np.ones((2, 3)), np.ones((2, 4))]

    async def work(batches):
        jobs = [
            batches.run(operation, rows) for operation in (first, second) for rows in kinds for _ in range(2)
        ]
        jobs += [batches.run(texts, ["a", "bb"]), batches.run(texts, ["ccc"])]
        jobs += [batches.run(alone, np.ones(1)), batches.run(alone, np.ones(1))]
        return await asyncio.gather(*jobs)

    found, calls = run(work, rows=100)
    assert [answer.dtype for answer in found[:6]] == [np.float32] * 2 + [np.float64] * 4
    assert [answer.tolist() for answer in found[12:14]] == [[1, 2], [3]]
    counts = {
        name: sorted(requests for n, _, requests in calls if n == name)
        for name in ("first", "second", "alone")
    }
    assert counts == {"first": [2, 2, 2], "second": [2, 2, 2], "alone": [1, 1]}


def test_a_request_that_fails_does_not_fail_those_that_it_was_joined_with():
    def picky(rows):
        if (rows < 0).any():
            raise ValueError("no")
        return rows

    operation = Operation("picky", picky)

    async def work(batches):
        jobs = [batches.run(operation, np.full((2, 1), value)) for value in (1.0, -1.0, 2.0)]
        return await asyncio.gather(*jobs, return_exceptions=True)

    (one, failed, two), _ = run(work)
    assert one.tolist() == [[1.0], [1.0]]
    assert two.tolist() == [[2.0], [2.0]]
    assert isinstance(failed, ValueError)


def test_a_full_queue_refuses_and_a_request_that_gave_up_is_not_called():
    gate, seen = threading.Event(), []

    def slow(rows):
        seen.append(rows.tolist())
        gate.wait(30)
        return rows

    operation = Operation("slow", slow, joins=False)

    async def work(batches):
        jobs = []
        for k in range(3):  # the first is called, and two wait
            jobs.append(asyncio.ensure_future(batches.run(operation, np.array([float(k)]))))
            while not seen:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        with pytest.raises(RequestProblem):
            await batches.run(operation, np.array([9.0]))
        jobs[1].cancel()
        await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(*jobs, return_exceptions=True)

    found, _ = run(work, queue=2, seconds=0.0)
    assert isinstance(found[1], asyncio.CancelledError)
    assert found[2].tolist() == [2.0]
    assert seen == [[0.0], [2.0]]


def test_many_clients_at_once_get_the_answers_of_the_model_and_never_those_of_others(
    serve_model, classifier, rows
):
    with serve_model(classifier, batch_seconds=0.002) as asked:
        wait_until(lambda: asked.service.ready)

        def client(seed):
            draw, connection = random.Random(seed), UnixConnection(asked.path)
            for _ in range(25):
                start, count = draw.randrange(280), draw.randint(1, 15)
                X = rows.X[start : start + count].astype(draw.choice([np.float32, np.float64]))
                connection.request("POST", "/v1/classify", npy(X), {"content-type": NPY, "accept": NPY})
                answer = connection.getresponse().read()
                scores = np.frombuffer(answer[-16 * len(X) :]).reshape(-1, 2)
                np.testing.assert_allclose(scores, classifier.scores(X), rtol=0, atol=1e-5)
            connection.close()
            return True

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(client, range(8)))
        text = asked.get("/metrics").body.decode()
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[:1] != "#")
        assert float(values['fairerclip_requests_total{endpoint="classify",status="200"}']) == 200
        assert float(values['fairerclip_batch_requests_sum{operation="scores"}']) == 200
        assert float(values['fairerclip_batch_requests_count{operation="scores"}']) < 150  # most were joined
        rows_total = float(values['fairerclip_rows_total{endpoint="classify"}'])
        assert rows_total == float(values['fairerclip_batch_rows_sum{operation="scores"}'])
