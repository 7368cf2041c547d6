"""What holds for every test: no setting of the person's leaks in, and a run can be repeated."""

import os

import pytest
from hypothesis import settings

# A busy machine must not fail a property test by its clock; CI tries the same examples every time.
settings.register_profile("local", deadline=None, print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(autouse=True)
def _no_outer_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may be run from inside a running agent; its variables are not for them."""
    for name in [name for name in os.environ if name.startswith("SIA_")]:
        monkeypatch.delenv(name)
