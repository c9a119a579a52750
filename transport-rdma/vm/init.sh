#!/bin/sh
# The first process of the soft-RoCE machine.
/bin/busybox --install -s /bin 2>/dev/null
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
mount -t tmpfs tmpfs /tmp; mkdir -p /dev/shm; mount -t tmpfs tmpfs /dev/shm
since() { cut -d' ' -f1 /proc/uptime; }
finish() { # The emulator exits with (value << 1) | 1.
  echo "machine: test ended with $1 at $(since) s"
  value=$1; [ "$value" = 0 ] && value=16
  printf "\\x$(printf %x "$value")" | dd of=/dev/port bs=1 seek=244 count=1 2>/dev/null
  poweroff -f
}
while read -r module; do
  insmod "/mod/$module.ko" || { echo "machine: $module cannot be loaded"; dmesg | tail -5; finish 3; }
done < /mod/order
test=$(sed -n 's/.*kvbtest=\([a-z]*\).*/\1/p' /proc/cmdline)
node=$(sed -n 's/.*kvbnode=\([0-9]\).*/\1/p' /proc/cmdline)
export NETDEV=dummy0 ADDRESS=10.77.0.1 NODE=$node
[ -n "$node" ] && NETDEV=eth0 ADDRESS=10.80.0.$node
# busybox has an ip of its own.
ip=/bin/ip
$ip link set lo up
if [ -z "$node" ]; then $ip link show dummy0 >/dev/null 2>&1 || $ip link add dummy0 type dummy; fi
$ip link set $NETDEV mtu 4200 up || $ip link set $NETDEV up
$ip addr add $ADDRESS/24 dev $NETDEV
rdma link add rxe0 type rxe netdev $NETDEV || { echo "machine: no rxe"; dmesg | tail -5; finish 4; }
[ -n "$node" ] && $ip -br addr
ulimit -l unlimited
echo "machine: $(uname -r), $(nproc) processors, rxe0 ready at $(since) s"
"/test_$test.sh"
finish $?
