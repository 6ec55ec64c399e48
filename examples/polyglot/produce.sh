#!/bin/sh
# Enqueues messages, one JSON object per argument: produce.sh '{"To": "bob", "Text": "hello"}'
set -e
url=${REDIS_URL:-redis://localhost:6379}
redis-cli -u "$url" LPUSH 'worqr:queues:{messages}' "$@"
redis-cli -u "$url" PUBLISH 'worqr_{messages}_work' $#
