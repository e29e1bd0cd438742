"""Results for the reports, each made once."""

import pytest
import sample


@pytest.fixture
def results():
    return sample.two_class(taus=6, tau_zs=3)
