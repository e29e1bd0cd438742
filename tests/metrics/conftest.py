"""Small matrices on many workers: BLAS threads would only wait for each other (75 times slower, measured)."""

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="session")
def _one_blas_thread() -> Iterator[None]:
    import scipy.linalg  # noqa: F401 - its BLAS must be loaded before it can be limited

    with threadpool_limits(limits=1):
        yield
