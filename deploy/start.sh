#!/bin/sh
# Starts a Redis server or a sentinel: start.sh FILE [LINE]...
#
# Both save state, such as who the master is, in their configuration file. So the first start copies
# FILE into the data directory and adds this server's own lines, and later starts read that copy. To
# change FILE or the password afterwards, remove the volumes.
#
# PASSWORD is that of all users; it replaces SECRET in FILE and in users.acl.
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
	case ${PASSWORD:-SECRET} in
	SECRET) echo "start.sh: set PASSWORD to a password of your own" >&2 && exit 1 ;;
	*[!A-Za-z0-9]*) echo "start.sh: PASSWORD may have letters and digits only" >&2 && exit 1 ;;
	esac
	{
		printf '%s\n' "dir $data" "$@"
		[ -n "$mode" ] || echo "aclfile $data/users.acl"
		sed "s/SECRET/$PASSWORD/g" "$here/$file"
	} >"$copy.new"
	[ -n "$mode" ] || sed "s/SECRET/$PASSWORD/g" "$here/users.acl" >"$data/users.acl"
	mv "$copy.new" "$copy"
fi
cd "$data" # the official images' entry point makes their user its owner, and continues as that user
exec $(command -v docker-entrypoint.sh) redis-server "$copy" $mode
