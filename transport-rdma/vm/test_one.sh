#!/bin/sh
# One machine: the contract, two processes, the demo, figures.
bad=0
say() { echo "== $* ($(cut -d' ' -f1 /proc/uptime) s)"; }
say "the contract of a data plane"
soft_roce rules rxe0 2>&1 || bad=1
pair() { # A target and a sender in two processes.
  soft_roce target rxe0 127.0.0.1 7000 > /tmp/target 2>&1 &
  target=$!
  soft_roce sender rxe0 127.0.0.1 127.0.0.1 7000 "$@" 2>&1 || { bad=1; tail -20 /tmp/target; }
  kill -9 $target 2>/dev/null; wait $target 2>/dev/null
}
say "two processes"
pair blocks stale unregister revoke port stopped blocks killed
say "the demo"
kvbaton demo --transport rdma --prefills 1 --decodes 1 --prefill-tp 1 --requests 16 \
  --concurrency 4 --prompt-tokens 64..256 --timeout 90 > /tmp/demo 2>&1 </dev/null || bad=1
tail -14 /tmp/demo
say "the doctor"
kvbaton doctor 2>&1 || { echo "doctor: FAILED"; bad=1; }
say "a process that may not pin memory"
# As an ordinary user with 64 KiB.
echo 'u:x:1000:1000:u:/:/bin/sh' > /etc/passwd; echo 'u:x:1000:' > /etc/group; chmod 1777 /tmp
(ulimit -l 64; start-stop-daemon -S -c u -x /bin/soft_roce -- target rxe0 127.0.0.1 7001 > /tmp/limited 2>&1)
grep -m1 -o 'raise the memlock limit' /tmp/limited || { echo "memlock: FAILED, no remedy"; tail -5 /tmp/limited; bad=1; }
say "figures"
perftest() { # Bytes, iterations: MB/s of perftest between two processes.
  ib_write_bw -d rxe0 -x 1 -s "$1" -n "$2" -F >/dev/null 2>&1 &
  sleep 1
  ib_write_bw -d rxe0 -x 1 -s "$1" -n "$2" -F 127.0.0.1 2>/dev/null | awk -v s="$1" '$1 == s { print $4 }'
  wait
}
echo "perftest 64 KiB: $(perftest 65536 400) MiB/s"
echo "perftest 1 MiB: $(perftest 1048576 40) MiB/s"
ib_write_lat -d rxe0 -x 1 -s 8 -n 500 -F >/dev/null 2>&1 &
sleep 1
echo "perftest 8 bytes: $(ib_write_lat -d rxe0 -x 1 -s 8 -n 500 -F 127.0.0.1 2>/dev/null | awk '$1 == 8 { print $5 }') us"
wait
pair figures
exit $bad
