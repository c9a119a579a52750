#!/usr/bin/env bash
# Boots the machine that build.sh made, prints its console; 0 when the test in it passed.
#   usage: OUT=dir boot.sh TEST [NODE]
# TEST names test_TEST.sh. With NODE 1 or 2, the machine is one of two on a wire (PORT).
set -uo pipefail
test=$1 node=${2:-}
# A /dev/kvm alone proves nothing: it may belong to a hypervisor without hardware support.
accelerator=tcg cpu=max
if [ -w /dev/kvm ] && { [ -d /sys/module/kvm_intel ] || [ -d /sys/module/kvm_amd ]; }; then
  accelerator=kvm cpu=host
fi
network=(-nic none)
case $node in
  1) network=(-netdev "socket,id=wire,listen=127.0.0.1:$PORT") ;;
  2) network=(-netdev "socket,id=wire,connect=127.0.0.1:$PORT") ;;
esac
[ -n "$node" ] && network+=(-device "virtio-net-pci,netdev=wire,mac=52:54:00:00:00:0$node,romfile=,vectors=0")
timeout -k 5 "${LIMIT:-240}" qemu-system-x86_64 -nodefaults -no-user-config -nographic -no-reboot \
  -machine q35,hpet=off -accel $accelerator -cpu $cpu -smp "${CPUS:-2}" -m "${MEMORY:-1024}" \
  -kernel "$OUT/vmlinux" -initrd "$OUT/initramfs.cpio.gz" \
  -append "console=ttyS0 quiet loglevel=4 panic=-1 tsc=reliable kvbtest=$test kvbnode=$node" \
  -serial stdio -monitor none "${network[@]}" \
  -device isa-debug-exit,iobase=0xf4,iosize=0x01 </dev/null 2>&1 |
  tr -d '\r' | sed -u 's/\x1b[c]*\(\[[?0-9;]*[a-zA-Z]\)*//g'
code=${PIPESTATUS[0]}
# (16 << 1) | 1, as init.sh writes it when all passed.
[ "$code" = 33 ] && exit 0
echo "machine: FAILED, the emulator ended with $code (124: its time was over), $accelerator"
exit 1
