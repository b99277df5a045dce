"""The files in deploy/, as far as they can be checked without a Kubernetes or Slurm cluster."""

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
from camel.core.message import Usage
from camel.engine.coordinator import Coordinator, Totals
from camel.engine.site import ModelReport, StageReport, WorkerReport
from camel.models.discovery import DnsName, find_replicas
from camel.models.governor import EndpointReport

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


def check_kubernetes(resource: dict[str, Any]) -> None:
    """Check a resource against the newest and an older schema of Kubernetes. Unknown fields are errors."""
    schemas = pytest.importorskip("kubernetes_validate")
    for version in (schemas.latest_version(), "1.30"):
        schemas.validate(resource, version, strict=True)


def pods(name: str) -> list[dict[str, Any]]:
    """The pods of a manifest of KubeRay."""
    spec = documents(name)[0]["spec"]
    spec = spec.get("rayClusterSpec", spec)
    groups = (spec["headGroupSpec"], *spec["workerGroupSpecs"])
    named = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}}
    return [named | {"spec": group["template"]["spec"]} for group in groups]


def test_manifests_fit_the_schemas_of_kubernetes():
    ours = [*documents("runs-volume.yaml"), *documents("vllm/kubernetes.yaml")]
    for resource in (*ours, *pods("raycluster.yaml"), *pods("rayjob.yaml")):
        check_kubernetes(resource)


@pytest.mark.parametrize(
    "change", [{"clusterIp": "None"}, {"ports": [{"port": "8000"}]}, {"selector": ["app", "vllm"]}]
)
def test_a_mistake_in_a_manifest_is_found(change: dict[str, Any]):
    schemas = pytest.importorskip("kubernetes_validate")
    service = documents("vllm/kubernetes.yaml")[0]
    with pytest.raises(schemas.ValidationError):
        check_kubernetes(service | {"spec": service["spec"] | change})


def test_replicas_on_kubernetes_are_found_by_dns():
    by_kind = {one["kind"]: one for one in documents("vllm/kubernetes.yaml")}
    service, deployment = by_kind["Service"]["spec"], by_kind["Deployment"]["spec"]
    assert service["clusterIP"] == "None", "so that the name resolves to the pods' addresses"
    assert not service.get("publishNotReadyAddresses")
    labels = deployment["template"]["metadata"]["labels"]
    assert service["selector"] == labels == deployment["selector"]["matchLabels"]
    assert by_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    assert "latest" not in container["image"].partition(":")[2]
    (port,) = service["ports"]
    assert container["ports"] == [{"name": port["targetPort"], "containerPort": port["port"]}], (
        "a name without an address does not translate ports"
    )
    assert f"--port={port['port']}" in container["args"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == "http"
    (_, wait) = container["lifecycle"]["preStop"]["exec"]["command"]
    assert int(wait) < pod["terminationGracePeriodSeconds"]
    name = by_kind["Service"]["metadata"]["name"]
    url = f"dns+http://{name}.default.svc.cluster.local:{port['port']}/v1"
    assert isinstance(find_replicas(url), DnsName)
    for place in (DEPLOY / "vllm" / "kubernetes.yaml", ROOT / "docs" / "operations.md"):
        assert url in place.read_text()


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


def metrics() -> dict[str, set[str]]:
    """The metrics of a run as Prometheus has them, with their values of `kind`."""
    pytest.importorskip("ray")
    from camel.engine.ray.actors import figures

    report = WorkerReport(
        {"m": ModelReport(Usage(1, 1), {"RateLimited": 1})},
        {"conversations": StageReport(1, 1, 1, {"stop.done": 1})},
        {"m": {"http://127.0.0.1": EndpointReport()}},
    )
    shards = Coordinator(1).look(0, 1).shards
    counters, gauges = figures(Totals(1, False, (), report, ("w",), shards))
    found: dict[str, set[str]] = {}
    for name in (*counters, *gauges):
        metric, _, kind = name.partition(".")
        found.setdefault(f"ray_camel_{metric}{'_total' * (name in counters)}", set()).add(kind)
    return found


def selectors(expression: str) -> list[Any]:
    """The selectors of series in a PromQL expression, and an error if it is none."""
    promql = pytest.importorskip("promql_parser")
    found: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, promql.VectorSelector):
            found.append(node)
        for name in ("expr", "lhs", "rhs", "selector", "vector_selector"):
            if (inner := getattr(node, name, None)) is not None:
                visit(inner)
        for inner in getattr(node, "args", None) or ():
            visit(inner)

    visit(promql.parse(expression))
    return found


def rules() -> list[dict[str, Any]]:
    (group,) = documents("alerts.yaml")[0]["groups"]
    return group["rules"]


def expressions() -> list[tuple[str, str]]:
    """Those of the alarms and of the dashboard, whose variables Grafana replaces."""
    board = json.loads((DEPLOY / "grafana.json").read_text())
    shown = [(panel["title"], one["expr"]) for panel in board["panels"] for one in panel["targets"]]
    return [*((rule["alert"], rule["expr"]) for rule in rules()), *shown]


def test_alarms_and_dashboard_ask_for_metrics_that_exist():
    known = metrics()
    for title, expression in expressions():
        found = selectors(expression)
        assert found, title
        assert len(found) == expression.count("ray_camel_"), title
        for selector in found:
            assert selector.name in known, f"{title}: {selector.name}"
            for matcher in selector.matchers.matchers:
                assert matcher.name in ("run", "kind"), title
                if matcher.name == "kind":
                    assert matcher.value in known[selector.name], f"{title}: {matcher.value}"


def test_alarms_are_rules_that_prometheus_can_read():
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    page = (ROOT / "docs" / "operations.md").read_text()
    for rule in rules():
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "runbook"}
        assert "by (run)" in rule["expr"], "one alarm for each run"
        assert rule["annotations"]["summary"].startswith("{{ $labels.run }}: ")
        name, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert name == "operations.md"
        assert f'| <a id="{anchor}"></a>`{rule["alert"]}` |' in page


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray Serve's own models
def test_ray_serve_accepts_the_recipe():
    pytest.importorskip("grpc_reflection")
    from ray.serve.schema import ServeDeploySchema

    (recipe,) = documents("vllm/serve.yaml")
    read = ServeDeploySchema.model_validate(recipe)
    (application,) = read.applications
    assert application.args["command"].count("--port={port}") == 1
    (deployment,) = application.deployments
    assert deployment.request_router_config["request_router_class"].endswith(".ConsistentHashRouter")


def test_the_unit_is_one_that_systemd_can_read(tmp_path: Path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze")
    server = tmp_path / "venv" / "bin" / "vllm"
    server.parent.mkdir(parents=True)
    server.write_text("#!/bin/sh\n")
    server.chmod(0o755)
    command = ["systemd-analyze", "verify", "--user", str(DEPLOY / "vllm" / "vllm.service")]
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    # It also reads the units of this machine, which may have their own faults.
    assert (done.returncode, [line for line in done.stderr.splitlines() if "vllm" in line]) == (0, [])


def machines(tmp_path: Path, hosts: str, *more: str, model: str = "Qwen/Qwen3-8B") -> Any:
    (tmp_path / "hosts.txt").write_text(hosts)
    command = [str(DEPLOY / "vllm" / "machines.sh"), model, "hosts.txt", *more]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)


def test_commands_for_machines_are_printed_and_not_run(tmp_path: Path):
    done = machines(tmp_path, "# two\ngpu-1\n\nme@gpu-2.lan", "9000")
    assert done.returncode == 0, done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["hosts.txt"]
    # Run with stand-ins: the same words reach ssh and scp, and the list is one that CAMEL reads.
    for name in ("ssh", "scp"):
        stub = tmp_path / "bin" / name
        stub.parent.mkdir(exist_ok=True)
        stub.write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@" >>"$CALLS"\n')
        stub.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
    }
    subprocess.run(["bash", "-e"], input=done.stdout, text=True, cwd=tmp_path, env=environment, check=True)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls.count("gpu-1") == calls.count("me@gpu-2.lan") == 3
    assert f"{DEPLOY}/vllm/vllm.service" in calls
    assert find_replicas(str(tmp_path / "replicas.txt")).look() == (
        "http://gpu-1:9000/v1",
        "http://gpu-2.lan:9000/v1",
    )


@pytest.mark.parametrize(
    ("hosts", "more"),
    [
        ("gpu-1; rm -rf ~", {}),
        ("$(reboot)", {}),
        ("-oProxyCommand=reboot", {}),
        ("me@-oProxyCommand=reboot", {}),
        ("a b", {}),
        ("gpu'1", {}),
        ("# none\n", {}),
        ("gpu-1", {"model": "x'; reboot #"}),
        ("gpu-1", {"model": "--help"}),
    ],
)
def test_what_a_shell_could_misread_is_refused(tmp_path: Path, hosts: str, more: dict[str, str]):
    done = machines(tmp_path, hosts, **more)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("machines.sh: ")
    assert machines(tmp_path, "gpu-1", "80; reboot").returncode == 2


def test_scripts_are_scripts():
    for script in (DEPLOY / "slurm.sh", DEPLOY / "vllm" / "machines.sh"):
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
