#!/bin/sh
# Creates a cluster; the first half of the nodes become masters: create.sh ADDRESS:PORT...
# It does nothing if the first one is part of a cluster.
set -eu
export REDISCLI_AUTH="$PASSWORD"
cli() { redis-cli --user admin --no-auth-warning "$@"; }

for node; do
	until [ "$(cli -h "${node%:*}" -p "${node#*:}" PING 2>/dev/null)" = PONG ]; do sleep 1; done
done
if cli -h "${1%:*}" -p "${1#*:}" CLUSTER INFO | tr -d '\r' | grep -qx cluster_known_nodes:1; then
	cli --cluster create "$@" --cluster-replicas 1 --cluster-yes
fi
