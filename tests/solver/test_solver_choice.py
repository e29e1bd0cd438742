import pytest

from fairerclip.solver import solver_choice
from fairerclip.solver.solver_choice import choose_solver, solver_costs


@pytest.mark.parametrize(
    ("n_rows", "n_features", "budget", "options", "expected"),
    [
        (162_770, 8000, 1 << 60, {}, "cg"),
        (60_000, 6000, 4 * 60_000 * 6000, {}, "cg"),
        (60_000, 6000, 4 * 60_000 * 6000 - 1, {}, "cholesky"),  # each step would compute all features anew
        (200_000, 8000, 0, {"width": 32, "gamma": 1e-3}, "cg"),  # which is cheap for narrow rows
        (200_000, 8000, 0, {"width": 768, "gamma": 1e-3}, "cholesky"),
        (10_000_000, 200, 1 << 60, {}, "cholesky"),  # a step costs as much as a large part of the sum
        (100_000, 3000, 1 << 60, {}, "cg"),
        (100_000, 3000, 1 << 60, {"fits": 20}, "cholesky"),  # folds share one sum
        (162_770, 8000, 1 << 60, {"gamma": 1e-12}, "cholesky"),  # would take too many steps
    ],
)
def test_auto_iterates_where_the_sum_of_products_costs_more_than_the_steps(
    monkeypatch, n_rows, n_features, budget, options, expected
):
    monkeypatch.setattr(solver_choice, "cache_budget", lambda: budget)
    assert choose_solver("auto", n_rows, n_features, 4, **options) == expected
    for solver in ("cg", "cholesky"):
        assert choose_solver(solver, n_rows, n_features, 4, **options) == solver


def test_costs_are_those_of_the_operations():
    one = solver_costs(100_000, 2000, 4, kept=True, gamma=1e-3, width=512)
    more_rows = solver_costs(200_000, 2000, 4, kept=True, gamma=1e-3, width=512)
    more_fits = solver_costs(100_000, 2000, 4, kept=True, gamma=1e-3, width=512, fits=3)
    factor = solver_choice.CHOLESKY * 2000**3 / 3
    assert more_rows.cholesky - one.cholesky == pytest.approx(solver_choice.SYRK * 1e5 * 2000**2)
    assert more_fits.cholesky - one.cholesky == pytest.approx(2 * factor)
    assert more_fits.cg == pytest.approx(3 * one.cg)
    assert solver_costs(100_000, 2000, 8, kept=True, gamma=1e-3, width=512).cg > 2 * one.cg
