#!/bin/sh
# Two machines on a wire: the first receives, the second sends; also over a link with losses.
if [ "$NODE" = 1 ]; then
  soft_roce target rxe0 10.80.0.1 7000 2>&1
  exit $?
fi
bad=0
i=0
while ! ping -c 1 -W 1 10.80.0.1 >/dev/null 2>&1 && [ $i -lt 30 ]; do i=$((i + 1)); sleep 1; done
[ $i -lt 30 ] || { echo "the other machine: FAILED, cannot be reached"; exit 1; }
NETDEV=eth0 soft_roce sender rxe0 10.80.0.2 10.80.0.1 7000 blocks stale unregister revoke lossy port 2>&1 || bad=1
exit $bad
