"""Processes that work for us: what they answer, how they fail alone, and that none of them stays."""

import os
import signal
import threading
import time
from multiprocessing import active_children

import pytest

from fairerclip.study.workers import Call, run_calls

pytestmark = pytest.mark.slow


def twice(number):
    return {"value": 2 * number, "process": os.getpid()}


def refuse(number):
    raise ArithmeticError(f"not {number}")


def unpicklable():
    return {"value": lambda: None}


def die(file, times):
    """Kill the own process, so many times."""
    lives = len(file.read_text()) if file.exists() else 0
    if lives < times:
        file.write_text("x" * (lives + 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return {"value": lives}


def wait(seconds):
    time.sleep(seconds)
    return {"value": 0}


def answers_of(calls, **options):
    answers = {}
    run_calls(calls, lambda number, answer: answers.update({number: answer}), **options)
    return [answers[number] for number in range(len(calls))]


def test_calls_are_answered_in_their_order_by_processes_or_by_this_one():
    calls, alone = [Call(twice, {"number": n}) for n in range(4)], {os.getpid()}
    for options, most in (({"processes": 2}, 2), ({"processes": 2, "calls_per_process": 1}, 4)):
        answers = answers_of(calls, **options)
        assert [answer.value["value"] for answer in answers] == [0, 2, 4, 6]
        found = {answer.value["process"] for answer in answers}
        assert len(found) <= most
        assert not found & alone
        assert not active_children()
    assert {answer.value["process"] for answer in answers_of(calls, processes=1)} == alone


def test_a_call_that_fails_or_cannot_be_sent_fails_alone():
    calls = [
        Call(refuse, {"number": 3}),
        Call(lambda: {}, {}),
        Call(unpicklable, {}),
        Call(twice, {"number": 1}),
    ]
    failed, unsent, unanswered, good = answers_of(calls, processes=2)
    assert failed.error == "ArithmeticError: not 3"
    assert "pickle" in unsent.error
    assert "pickle" in unanswered.error
    assert good.value["value"] == 2


@pytest.mark.linux
def test_a_process_that_dies_costs_its_own_call_alone_and_is_tried_once_more(tmp_path):
    calls = [Call(twice, {"number": n}) for n in range(4)]
    calls += [
        Call(die, {"file": tmp_path / "once", "times": 1}),
        Call(die, {"file": tmp_path / "ever", "times": 9}),
    ]
    *good, once, ever = answers_of(calls, processes=2)
    assert [answer.value["value"] for answer in good] == [0, 2, 4, 6]
    assert once.value["value"] == 1
    assert ever.error.startswith("LostWorkerError: its process ended without an answer (signal 9), 2 times")
    assert (tmp_path / "ever").read_text() == "xx"


def test_an_interrupt_ends_running_calls_at_once():
    calls = [Call(twice, {"number": 0}), *[Call(wait, {"seconds": 60})] * 3]
    noticed = []

    def interrupt(number, answer):
        noticed.append(time.monotonic())
        threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()

    with pytest.raises(KeyboardInterrupt):
        run_calls(calls, interrupt, processes=2, calls_per_process=1)
    assert time.monotonic() - noticed[0] < 5
    assert not active_children()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
