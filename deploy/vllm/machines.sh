#!/usr/bin/env bash
# Print the commands that install and start vllm.service on machines, and that list them for CAMEL. It runs none of them.
#   deploy/vllm/machines.sh MODEL HOSTS.txt [PORT]            # read what it prints
#   deploy/vllm/machines.sh MODEL HOSTS.txt [PORT] | bash -e  # then run it
# HOSTS.txt has one HOST or USER@HOST per line; blank lines and those that begin with # are skipped. On each machine, vLLM must
# be in ~/venv. In CAMEL's configuration: base_url = "file:///…/replicas.txt", which it reads again when it changes.
set -euo pipefail

usage="usage: deploy/vllm/machines.sh MODEL HOSTS.txt [PORT]"
model=${1:?$usage}
hosts=${2:?$usage}
port=${3:-8000}
unit=$(cd "$(dirname "$0")" && pwd)/vllm.service

refuse() {
	printf 'machines.sh: %s\n' "$1" >&2
	exit 2
}
# Only what no shell and no option parser takes for anything else, here and on the machine.
[[ $model =~ ^[A-Za-z0-9/][A-Za-z0-9._/-]*$ ]] || refuse "MODEL must be a name or a path without special characters"
[[ $port =~ ^[1-9][0-9]{0,4}$ ]] && ((port <= 65535)) || refuse "PORT must be a number up to 65535"

lines=() urls=()
while IFS= read -r host || [[ -n $host ]]; do
	[[ -z $host || $host == \#* ]] && continue
	[[ $host =~ ^([A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9][A-Za-z0-9.-]*$ ]] || refuse "not HOST or USER@HOST: $(printf %q "$host")"
	lines+=("ssh -n $host 'mkdir -p ~/.config/camel ~/.config/systemd/user'")
	lines+=("scp $(printf %q "$unit") $host:.config/systemd/user/vllm.service")
	# A file that is there stays: it may have a token.
	lines+=("ssh -n $host 'test -e ~/.config/camel/vllm.env || (umask 077; printf \"MODEL=%s\\nPORT=%s\\n\" $model $port > ~/.config/camel/vllm.env)'")
	# Without linger, the replica would end with the session.
	lines+=("ssh -n $host 'loginctl enable-linger && systemctl --user daemon-reload && systemctl --user enable --now vllm'")
	urls+=("http://${host#*@}:$port/v1")
done <"$hosts"
((${#urls[@]})) || refuse "no host in $(printf %q "$hosts")"

printf '%s\n' "${lines[@]}"
# Complete or not at all: CAMEL may be reading it.
printf "printf '%%s\\\\n' %s > replicas.txt.new\n" "${urls[*]}"
printf 'mv replicas.txt.new replicas.txt\n'
