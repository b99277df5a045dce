#!/usr/bin/env bash
# A run on a Slurm cluster: a Ray head on the first node, Ray on the others, and the same command as anywhere.
#   sbatch deploy/slurm.sh config.toml [more options of camel generate]
# The run's folder must be on a file system that all nodes see. When the time is over, send the same job again: it goes on.
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

export RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=token
# In a file that only you can read, and not in the environment of the job, which Slurm keeps.
token=$(mktemp "$PWD/.camel-token.XXXXXX")
chmod 600 "$token"
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$token"
export RAY_AUTH_TOKEN_PATH=$token

nodes=()
while IFS= read -r node; do nodes+=("$node"); done < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
first=${nodes[0]}
ip=$(srun --nodes=1 --ntasks=1 --nodelist="$first" hostname --ip-address | awk '{print $1}')
port=$((20000 + SLURM_JOB_ID % 20000))
options=(--block --disable-usage-stats --object-store-memory=83886080 "--num-cpus=${SLURM_CPUS_PER_TASK:-1}")

steps=()
finish() {
	for step in ${steps[@]+"${steps[@]}"}; do kill "$step" 2>/dev/null || true; done
	rm -f "$token"
}
trap finish EXIT

srun --overlap --nodes=1 --ntasks=1 --nodelist="$first" \
	ray start --head "--node-ip-address=$ip" "--port=$port" --include-dashboard=false "${options[@]}" &
steps+=($!)
for node in "${nodes[@]:1}"; do
	srun --overlap --nodes=1 --ntasks=1 --nodelist="$node" ray start "--address=$ip:$port" "${options[@]}" &
	steps+=($!)
done

# The driver is a child in the background, so that Slurm's signal is passed on to it: calls in flight end and are kept.
for _ in $(seq 60); do
	srun --overlap --nodes=1 --ntasks=1 --nodelist="$first" ray status --address "$ip:$port" >/dev/null 2>&1 && break
	sleep 2
done
srun --overlap --nodes=1 --ntasks=1 --nodelist="$first" camel generate "$config" --address "$ip:$port" "$@" &
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
