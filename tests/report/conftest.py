import pytest
import sample


@pytest.fixture
def results():
    return sample.two_class()
