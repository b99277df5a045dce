#!/usr/bin/env bash
# A run on a Slurm cluster: a Ray head on the first node, Ray on the others, and the same command as anywhere.
#   sbatch deploy/slurm.sh config.toml [more options of camel generate]
# `out` in the configuration must be an absolute path on a file system that all nodes see (or s3://…), and so must be the folder
# from which this is sent: the cluster's token lies there while the job runs. When the time is over, send the same job again: it
# resumes.
#SBATCH --job-name=camel
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=B:INT@120
#SBATCH --requeue
set -euo pipefail

config=${1:?usage: sbatch deploy/slurm.sh CONFIG.toml [options of camel generate]}
shift

# Ray and CAMEL must be found on every node; a virtual environment has to lie where all of them see it:
# source /shared/venv/bin/activate
# Of a run on s3://, the journals: an absolute path, the same at every start. Nodes may share it, or have their own.
# export CAMEL_JOURNALS=/shared/journals

export RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=token
# In a file that only you can read, and not in the environment of the job, which Slurm keeps.
token=$(mktemp "$PWD/.camel-token.XXXXXX")
chmod 600 "$token"
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$token"
export RAY_AUTH_TOKEN_PATH=$token

nodes=()
while IFS= read -r node; do nodes+=("$node"); done < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
first=${nodes[0]}
# Not --ip-address, which looks the name up and finds 127.0.1.1 on some systems. Of several addresses the first is taken.
ip=$(srun --nodes=1 --ntasks=1 --nodelist="$first" hostname -I | awk '{print $1}')
port=$((20000 + SLURM_JOB_ID % 20000))
metrics=$((40000 + SLURM_JOB_ID % 20000))
cpus=${SLURM_CPUS_PER_TASK:-1}
# Drivers live on the head and workers elsewhere: what kills a worker must not take the driver along. So the first node's cores
# are the driver's, the coordinator's and Ray's; where it is the only node, workers have them all the same.
head_cpus=0
if [ "${#nodes[@]}" -eq 1 ]; then head_cpus=$cpus; fi
options=(--block --disable-usage-stats --object-store-memory=83886080)

steps=()
finish() {
	for step in ${steps[@]+"${steps[@]}"}; do kill "$step" 2>/dev/null || true; done
	rm -f "$token"
}
trap finish EXIT

srun --overlap --nodes=1 --ntasks=1 --nodelist="$first" \
	ray start --head "--node-ip-address=$ip" "--port=$port" "--num-cpus=$head_cpus" --include-dashboard=false \
	"--metrics-export-port=$metrics" "${options[@]}" &
steps+=($!)
for node in "${nodes[@]:1}"; do
	srun --overlap --nodes=1 --ntasks=1 --nodelist="$node" \
		ray start "--address=$ip:$port" "--num-cpus=$cpus" "${options[@]}" &
	steps+=($!)
done

echo "metrics of the run: http://$ip:$metrics/metrics"
# The driver is a child in the background, so that Slurm's signal is passed on to it: calls in flight end and are kept.
for _ in $(seq 60); do
	srun --overlap --nodes=1 --ntasks=1 --nodelist="$first" ray status --address "$ip:$port" >/dev/null 2>&1 && break
	sleep 2
done
# --disable-status: of one SIGINT srun would else only say how its tasks are, and pass on nothing.
srun --disable-status --overlap --nodes=1 --ntasks=1 --nodelist="$first" \
	camel generate "$config" --address "$ip:$port" "$@" &
driver=$!
trap 'kill -INT "$driver" 2>/dev/null || true' INT TERM
status=0
wait "$driver" || status=$?
# Again, if it was a signal that ended the wait and not the driver.
if kill -0 "$driver" 2>/dev/null; then
	status=0
	wait "$driver" || status=$?
fi
exit "$status"
