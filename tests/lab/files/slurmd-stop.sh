#!/bin/sh
# Stops slurmd and waits until it is gone; its steps live on.
PATH=/usr/sbin:/usr/bin
read -r pid 2>/dev/null </run/slurmd.pid || exit 0
kill "$pid" 2>/dev/null || exit 0
tries=100
while kill -0 "$pid" 2>/dev/null; do
	tries=$((tries - 1))
	[ "$tries" -gt 0 ] || { kill -9 "$pid"; exit 0; }
	sleep 0.05
done
