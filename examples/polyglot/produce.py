#!/usr/bin/env python3
"""Enqueues a message: produce.py TO TEXT. It needs redis-py: pip install redis."""

import json
import os
import sys

import redis

r = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379"))
r.lpush("worqr:queues:{messages}", json.dumps({"To": sys.argv[1], "Text": sys.argv[2]}))
r.publish("worqr_{messages}_work", 1)
