"""The files in deploy/: as far as they can be held against something without a Kubernetes or Slurm cluster."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from camel import __version__

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"

# Fields of ray.io/v1 as KubeRay 1.6 documents them: a misspelt one is dropped by the API server without a word.
CLUSTER = {
    "rayVersion",
    "authOptions",
    "enableInTreeAutoscaling",
    "autoscalerOptions",
    "headGroupSpec",
    "workerGroupSpecs",
    "headServiceAnnotations",
    "suspend",
    "managedBy",
    "gcsFaultToleranceOptions",
}
JOB = {
    "entrypoint",
    "runtimeEnvYAML",
    "shutdownAfterJobFinishes",
    "ttlSecondsAfterFinished",
    "activeDeadlineSeconds",
    "backoffLimit",
    "rayClusterSpec",
    "clusterSelector",
    "submissionMode",
    "submitterPodTemplate",
    "submitterConfig",
    "suspend",
}
HEAD = {"rayStartParams", "template", "serviceType", "enableIngress", "headService", "resources", "labels"}
WORKERS = {
    "groupName",
    "replicas",
    "minReplicas",
    "maxReplicas",
    "idleTimeoutSeconds",
    "numOfHosts",
    "rayStartParams",
    "template",
    "scaleStrategy",
    "suspend",
    "resources",
    "labels",
}


def documents(name: str) -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


@pytest.mark.parametrize("name", ["raycluster.yaml", "rayjob.yaml"])
def test_kuberay_manifests(name: str):
    resource = documents(name)[0]
    assert resource["apiVersion"] == "ray.io/v1"
    spec = resource["spec"]
    if resource["kind"] == "RayJob":
        assert set(spec) <= JOB
        assert "camel generate" in spec["entrypoint"]
        spec = spec["rayClusterSpec"]
    assert set(spec) <= CLUSTER
    assert spec["authOptions"] == {"mode": "token"}
    head, groups = spec["headGroupSpec"], spec["workerGroupSpecs"]
    assert set(head) <= HEAD
    assert head["rayStartParams"]["num-cpus"] == "0", "workers and drivers are not to share a fate"
    for group in groups:
        assert set(group) <= WORKERS
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in (head, *groups):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        assert pod["securityContext"] == {"fsGroup": 100}, (
            "the image's user must be able to write to the volume"
        )
        container = pod["containers"][0]
        assert container["image"] == f"REGISTRY/camel:{__version__}"
        assert {mount["name"] for mount in container["volumeMounts"]} <= {
            one["name"] for one in pod["volumes"]
        }
        journals = next(one["value"] for one in container["env"] if one["name"] == "CAMEL_JOURNALS")
        assert any(journals.startswith(f"{mount['mountPath']}/") for mount in container["volumeMounts"]), (
            "of a run in a store they outlast the pod"
        )
        for variable in container["env"]:
            secret = any(word in variable["name"] for word in ("KEY", "TOKEN", "SECRET"))
            assert ("valueFrom" in variable) == secret, "a secret comes from a Secret"


def test_deleting_a_cluster_or_a_job_deletes_no_run():
    kinds = {name: [one["kind"] for one in documents(name)] for name in ("raycluster.yaml", "rayjob.yaml")}
    assert kinds == {"raycluster.yaml": ["RayCluster"], "rayjob.yaml": ["RayJob"]}
    (claim,) = documents("runs-volume.yaml")
    assert claim["kind"] == "PersistentVolumeClaim"
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    cluster = documents("raycluster.yaml")[0]["spec"]
    volumes = cluster["headGroupSpec"]["template"]["spec"]["volumes"]
    assert claim["metadata"]["name"] in [one["persistentVolumeClaim"]["claimName"] for one in volumes]


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ray = next(line for line in project["optional-dependencies"]["cluster"] if line.startswith("ray"))
    least = re.search(r">=([\d.]+)", ray)
    assert least is not None
    for name in ("raycluster.yaml", "rayjob.yaml", "Dockerfile"):
        found = re.findall(
            r"(?:rayVersion: \"|rayproject/ray:)([\d.]+?)(?:\"|-)", (DEPLOY / name).read_text()
        )
        assert found, name
        assert all(version.startswith(least[1]) for version in found), name


def test_dashboard_is_json_that_grafana_can_read():
    board = json.loads((DEPLOY / "grafana.json").read_text())
    assert board["schemaVersion"] >= 36
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    for panel in board["panels"]:
        assert panel["targets"]
        for target in panel["targets"]:
            assert "ray_camel_" in target["expr"]
            assert target["expr"].count("(") == target["expr"].count(")")


def test_slurm_script_is_a_script():
    script = DEPLOY / "slurm.sh"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", str(script)], check=True)


STUB = """#!/usr/bin/env bash
echo "$(basename "$0") $*" >>"$CALLS"
case "$*" in
*"show hostnames"*) printf "$NODES" ;;
*"hostname -I"*) echo 10.0.0.1 10.0.0.2 ;;
*"ray start"*) echo "$(cat "$RAY_AUTH_TOKEN_PATH")" >>"$CALLS.tokens"; exec sleep 30 ;;
*"camel generate"*)
	# Every node has started and read the token by then.
	for _ in $(seq 1200); do
		[ "$(cat "$CALLS.tokens" 2>/dev/null | wc -l)" -ge "$COUNT" ] && break
		sleep 0.1
	done
	exit "$STATUS" ;;
esac
"""


@pytest.mark.parametrize(("status", "nodes"), [(0, 3), (3, 3), (0, 1)])
def test_slurm_script_starts_every_node_once_and_cleans_up(tmp_path: Path, status: int, nodes: int):
    for name in ("srun", "scontrol"):
        stub = tmp_path / "bin" / name
        stub.parent.mkdir(exist_ok=True)
        stub.write_text(STUB)
        stub.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "SLURM_JOB_ID": "123456",
        "SLURM_JOB_NODELIST": "n[1-3]",
        "SLURM_CPUS_PER_TASK": "8",
        "CALLS": str(tmp_path / "calls"),
        "STATUS": str(status),
        "COUNT": str(nodes),
        "NODES": "".join(f"n{number}\\n" for number in range(1, nodes + 1)),
    }
    command = ["bash", str(DEPLOY / "slurm.sh"), "config.toml", "--workers", "16"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stderr
    calls = (tmp_path / "calls").read_text()
    assert calls.count("ray start --head") == 1
    assert calls.count("ray start --address=10.0.0.1:23456 --num-cpus=8") == nodes - 1
    head = next(line for line in calls.splitlines() if "ray start --head" in line)
    assert ("--num-cpus=0" in head) == (nodes > 1), "alone it has to have room for workers"
    assert "--metrics-export-port=43456" in head
    driver = next(line for line in calls.splitlines() if "camel generate" in line)
    assert "srun --disable-status " in driver, "else one SIGINT is not passed on"
    assert "camel generate config.toml --address 10.0.0.1:23456 --workers 16" in calls
    tokens = (tmp_path / "calls.tokens").read_text().split()
    assert len(tokens) == nodes
    assert len(set(tokens)) == 1
    assert len(tokens[0]) == 64
    assert tokens[0] not in calls
    assert not list(tmp_path.glob(".camel-token*"))
