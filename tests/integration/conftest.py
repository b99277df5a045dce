"""One Ray cluster per test process, for the tests that do not kill its nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import cluster

SECRET_OF_THE_NODES = "canary/of/the/nodes/c4ca4238a0b923820dcc509a"
LOUD = {
    "RAY_BACKEND_LOG_LEVEL": "debug",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONASYNCIODEBUG": "1",
}
LOUD_PYTHON = "import logging\nlogging.basicConfig(level=logging.DEBUG)\n"


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cluster.RayCluster]:
    """A head with a dashboard, and one node with room for two workers.

    It logs as much as it can, for the search for keys in its logs. Its nodes have no key, and a secret of their own.
    """
    loud = tmp_path_factory.mktemp("loud")
    (loud / "sitecustomize.py").write_text(LOUD_PYTHON)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(loud)
        for name, value in {**LOUD, "AWS_SECRET_ACCESS_KEY": SECRET_OF_THE_NODES}.items():
            patch.setenv(name, value)
        patch.delenv("OPENAI_API_KEY", raising=False)
        started = cluster.start(nodes=1, cpus=2, dashboard=True)
        nodes = started.__enter__()
    try:
        yield nodes
    finally:
        started.__exit__(None, None, None)
