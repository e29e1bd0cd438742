"""Results of an audit in notebooks."""

import pytest

from fairerclip import FairerCLIP, audit
from fairerclip.data import simulate
from fairerclip.metrics import paired_report
from notebook_html import paragraphs, shown, tables


@pytest.fixture(scope="module")
def task():
    return simulate("waterbirds", seed=0, scale=0.05, width=32)


@pytest.fixture(scope="module")
def model(task):
    model = FairerCLIP(
        n_features=50, tau=0.5, gamma=1e-3, zero_shot=0.5, criterion="marginal", random_state=0
    )
    s_text = task.sensitive_attribute().text
    return model.fit(task.train.X, task.train.y, text=task.text_target, sensitive_text=s_text)


@pytest.fixture(scope="module")
def called():
    return []


@pytest.fixture(scope="module")
def found(task, model, called):
    return audit(
        task, model=model, permutations=19, progress=lambda done, total: called.append((done, total))
    )


def test_the_verdict_and_the_groups_are_shown(found, task, model):
    root = shown(found.results)
    assert paragraphs(root)[1:-1] == list(found.results.verdict)
    assert [e.text for e in root.iter("strong")] == [found.results.verdict[0]]
    [table] = tables(root)
    assert table[0] == ["group", "rows", "accuracy before", "accuracy after", "change, points"]
    before = (task.test.X @ task.text_target.T).argmax(axis=1)
    s_names = task.sensitive_attribute().names
    pair = paired_report(
        task.test.y,
        before,
        model.predict(task.test.X),
        task.test.sensitive(),
        class_names=task.class_names,
        sensitive_names=s_names,
    )
    assert [row[:2] for row in table[1:]] == [[group.name, str(group.n)] for group in pair.groups]
    for row, group in zip(table[1:], pair.groups, strict=True):
        assert row[2].startswith(f"{100 * group.before:.1f}\u00a0% [")
        assert row[3].startswith(f"{100 * group.after:.1f}\u00a0% [")
