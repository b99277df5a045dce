"""Ray clusters for the tests that do not kill their nodes."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.support import cluster

SECRET_OF_THE_NODES = "canary/of/the/nodes/c4ca4238a0b923820dcc509a"
LOUD = {
    "RAY_BACKEND_LOG_LEVEL": "debug",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONASYNCIODEBUG": "1",
}
LOUD_PYTHON = "import logging\nlogging.basicConfig(level=logging.DEBUG)\n"


@contextmanager
def _started(**environment: str) -> Generator[cluster.RayCluster]:
    """A head with a dashboard, and one node with room for two workers. Its nodes have no key."""
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.delenv("OPENAI_API_KEY", raising=False)
            nodes = stack.enter_context(cluster.start(nodes=1, cpus=2, dashboard=True))
        yield nodes


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[cluster.RayCluster]:
    """One cluster per test process."""
    with _started() as nodes:
        yield nodes


@pytest.fixture(scope="module")
def loud_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cluster.RayCluster]:
    """A cluster whose nodes have a secret and log as much as they can, for the search for keys in logs."""
    loud = tmp_path_factory.mktemp("loud")
    (loud / "sitecustomize.py").write_text(LOUD_PYTHON)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(loud)
        with _started(**LOUD, AWS_SECRET_ACCESS_KEY=SECRET_OF_THE_NODES) as nodes:
            yield nodes
