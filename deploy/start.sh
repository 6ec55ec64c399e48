#!/bin/sh
# Starts a Redis server or a sentinel: start.sh FILE [LINE]...
#
# Both save state, such as who the master is, in their configuration file. So the first start copies
# FILE into the data directory and adds this server's own lines, and later starts read that copy. To
# change FILE afterwards, remove the volumes.
set -eu
umask 077
here=$(cd "$(dirname "$0")" && pwd)
data=${DATA:-/data}
file=$1
shift
copy=$data/$(basename "$file")
case $file in
*sentinel.conf) mode=--sentinel ;;
*) mode= ;;
esac
if ! [ -e "$copy" ]; then
	{
		printf '%s\n' "dir $data" "$@"
		[ -n "$mode" ] || echo "aclfile $here/users.acl"
		cat "$here/$file"
	} >"$copy.new"
	mv "$copy.new" "$copy"
fi
cd "$data" # the official images' entry point makes their user its owner, and continues as that user
exec $(command -v docker-entrypoint.sh) redis-server "$copy" $mode
