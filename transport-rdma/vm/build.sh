#!/usr/bin/env bash
# Builds OUT/vmlinux and OUT/initramfs.cpio.gz of the soft-RoCE machine: Debian's kernel with
# rdma_rxe, busybox, rdma-core, and the programs named on the command line, with the shared
# libraries that they need.
#   usage: OUT=dir CACHE=dir build.sh PROGRAM...
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$OUT" "$CACHE"

# The generic kernel: the cloud flavour has no rdma_rxe.
package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -1)
kernel=$CACHE/$package
if [ ! -e "$kernel/done" ]; then
  rm -rf "$kernel"; mkdir -p "$kernel/x"
  (cd "$kernel" && apt-get -q download "$package" >&2)
  dpkg-deb --fsys-tarfile "$kernel"/*.deb | tar -x -C "$kernel/x" --wildcards \
    './boot/vmlinuz-*' \
    './lib/modules/*/kernel/drivers/infiniband/core/*' './lib/modules/*/kernel/drivers/infiniband/sw/*' \
    './lib/modules/*/kernel/net/ipv4/udp_tunnel.ko' './lib/modules/*/kernel/net/ipv6/ip6_udp_tunnel.ko' \
    './lib/modules/*/kernel/drivers/net/dummy.ko' './lib/modules/*/kernel/crypto/crc32_generic.ko' \
    './lib/modules/*/kernel/fs/configfs/*' './lib/modules/*/kernel/drivers/virtio/*' \
    './lib/modules/*/kernel/drivers/net/virtio_net.ko' './lib/modules/*/kernel/drivers/net/net_failover.ko' \
    './lib/modules/*/kernel/net/core/failover.ko' './lib/modules/*/kernel/net/sched/sch_netem.ko'
  rm -f "$kernel"/*.deb
  # The uncompressed kernel is entered directly, which spares an emulated decompression.
  packed=$(ls "$kernel"/x/boot/vmlinuz-*)
  offset=$(LC_ALL=C grep -abo -P '\xFD7zXZ\x00' "$packed" | head -1 | cut -d: -f1)
  tail -c +$((offset + 1)) "$packed" | xz -dc --single-stream > "$kernel/vmlinux" 2>/dev/null || true
  test -s "$kernel/vmlinux"
  touch "$kernel/done"
fi
cp "$kernel/vmlinux" "$OUT/vmlinux"

root=$(mktemp -d); trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
mkdir -p "$root"/{bin,etc/libibverbs.d,proc,sys,dev,tmp,mod,usr/lib/x86_64-linux-gnu/libibverbs}
cp "$(command -v busybox)" "$root/bin/busybox"
ln -s busybox "$root/bin/sh"
libraries() {
  ldd "$1" 2>/dev/null | grep -o '/[^ ]*' | sort -u | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    [ -e "$root$library" ] || cp -L "$library" "$root$library"
  done
}
program() { cp -L "$1" "$root/bin/$(basename "$1")"; strip -g "$root/bin/$(basename "$1")" 2>/dev/null || true; libraries "$1"; }
for name in ip tc rdma ibv_devinfo ib_write_bw ib_write_lat; do program "$(command -v $name)"; done
for path in "$@"; do program "$path"; done
# libibverbs opens the driver named in /etc/libibverbs.d, and programs open libibverbs.
cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/"
for driver in /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so; do
  cp "$driver" "$root/usr/lib/x86_64-linux-gnu/libibverbs/"; libraries "$driver"
done
verbs=$(ldconfig -p | sed -n 's|.*libibverbs.so.1 .*=> ||p' | head -1)
mkdir -p "$root$(dirname "$verbs")"; cp -L "$verbs" "$root$verbs"; libraries "$verbs"
# In this order; without crc32_generic rxe cannot be loaded.
for module in configfs crc32_generic udp_tunnel ip6_udp_tunnel ib_core ib_uverbs rdma_rxe dummy \
    virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci failover net_failover \
    virtio_net sch_netem; do
  file=$(find "$kernel/x" -name "$module.ko" -print -quit)
  if [ -n "$file" ]; then cp "$file" "$root/mod/"; echo "$module" >> "$root/mod/order"; fi
done
cp "$here/init.sh" "$root/init"; cp "$here"/test_*.sh "$root/"; chmod +x "$root/init" "$root"/test_*.sh
(cd "$root" && find . -print0 | LC_ALL=C sort -z | cpio --null -o -H newc -R 0:0 --quiet | gzip -1) > "$OUT/initramfs.cpio.gz"
