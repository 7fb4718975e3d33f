#!/usr/bin/env bash
# Makes the guest that run boots, once per machine, and prints the folder that holds it: kernel, initrd.cpio, version.
#
# usage: guest.sh [-u]        -u: look for a newer kernel package first
#
# The kernel is the distribution's own 6.12 package, downloaded and unpacked but never installed. 6.12 and not 6.1, because
# 6.1's rdma_rxe runs the requester inside ibv_post_send() and so is never truly asynchronous; not the cloud flavour, because
# that has no RDMA modules. ESCROW_GUEST_DEB names a package file to use instead of a download.
#
# All of it lives in ${ESCROW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/escrow}, outside any checkout. A guest is named after
# a digest of what it was made from, made under a lock in a folder of its own and renamed into place: callers that race for
# it see a whole one or none.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
cache=${ESCROW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/escrow}

# In the order they are loaded, each after what it depends on. What this kernel has built in, or does not have, is skipped.
modules=(
	# the root file system and the output ports
	virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_console
	netfs fscache 9pnet 9pnet_virtio 9p
	# the wires, VLANs on them, netem to lose and delay packets, and plug to keep them
	failover net_failover virtio_net veth llc stp mrp garp 8021q sch_netem sch_plug
	# verbs
	configfs crc32_generic crc32-pclmul udp_tunnel ip6_udp_tunnel
	ib_core ib_uverbs ib_cm iw_cm rdma_cm rdma_ucm rdma_rxe
)

die()
{
	echo "guest.sh: $*" >&2
	exit 1
}

# The newest kernel package already here; empty when there is none.
cached_package()
{
	local newest
	newest=$(find "$cache" -maxdepth 1 -name 'linux-image-6.12.*.deb' | sort -V | tail -n 1)
	printf '%s' "$newest"
}

# The name of the newest kernel package that the machine's package lists offer; empty when there is none.
offered_package()
{
	apt-cache search --names-only '^linux-image-6\.12\.[0-9]+\+deb1[23]-amd64$' | awk '{ print $1 }' | sort -V | tail -n 1
}

# Downloads the newest kernel package into the cache. A fresh machine has no package lists yet.
download_package()
{
	local name tmp
	name=$(offered_package)
	if [ -z "$name" ] && [ "$(id -u)" = 0 ]; then
		apt-get -qq -o DPkg::Lock::Timeout=600 update >&2 || true
		name=$(offered_package)
	fi
	[ -n "$name" ] || die "the package lists have no linux-image-6.12.*+deb12-amd64: run apt-get update, or set ESCROW_GUEST_DEB"
	[ -z "$(find "$cache" -maxdepth 1 -name "${name}_*.deb")" ] || return 0
	echo "guest.sh: downloading $name" >&2
	tmp=$(mktemp -d "$cache/download.XXXXXX")
	(cd "$tmp" && apt-get -qq -o APT::Sandbox::User=root download "$name" >&2) || { rm -rf "$tmp"; die "cannot download $name"; }
	mv "$tmp"/*.deb "$cache/"
	rmdir "$tmp"
}

# number_at FILE OFFSET SIZE: the little-endian number there
number_at()
{
	od -A n -t "u$3" -j "$2" -N "$3" "$1" | tr -d ' '
}

# unpack_kernel VMLINUZ VMLINUX: takes the ELF file out of the boot image, which QEMU starts at its PVH entry. It saves a TCG
# guest the unpacking, more than a second. Offsets: the kernel's Documentation/arch/x86/boot.rst; the last four bytes of the
# payload are the unpacked size, which is not zstd's. A kernel packed otherwise is booted as it is.
unpack_kernel()
{
	local start length
	start=$((($(number_at "$1" 497 1) + 1) * 512 + $(number_at "$1" 584 4)))
	length=$(($(number_at "$1" 588 4) - 4))
	if ! tail -c "+$((start + 1))" "$1" | head -c "$length" | zstd -qdc > "$2" 2> /dev/null; then
		cp "$1" "$2"
	fi
}

# make_guest PACKAGE FOLDER: unpacks what is needed from the package and packs the initial RAM disk.
make_guest()
{
	local deb=$1 out=$2 patterns=() m file
	for m in "${modules[@]}"; do
		patterns+=("*/$m.ko" "*/$m.ko.xz")
	done
	mkdir -p "$out/x" "$out/ird"/{bin,mod,proc,sys,dev,new}
	# tar complains about names this kernel does not have; what must be there is checked below
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$out/x" --wildcards './boot/vmlinuz*' "${patterns[@]}" 2>/dev/null || true
	mv "$out/x/boot"/vmlinuz-* "$out/x/vmlinuz" || die "no kernel in $deb"
	unpack_kernel "$out/x/vmlinuz" "$out/kernel"
	for m in "${modules[@]}"; do
		file=$(find "$out/x" \( -name "$m.ko" -o -name "$m.ko.xz" \) -print -quit)
		case $file in
		'') continue ;;
		*.xz) xz -dc "$file" > "$out/ird/mod/$m.ko" ;;
		*) cp "$file" "$out/ird/mod/$m.ko" ;;
		esac
		echo "$m" >> "$out/ird/mod/order"
	done
	for m in 9p rdma_rxe rdma_ucm; do
		[ -f "$out/ird/mod/$m.ko" ] || die "no module $m in $deb"
	done
	strip --strip-debug "$out/ird/mod"/*.ko
	cp "$(command -v busybox)" "$out/ird/bin/busybox"
	ln -s busybox "$out/ird/bin/sh"
	install -m 755 "$here/init" "$out/ird/init"
	(cd "$out/ird" && find . | LC_ALL=C sort | cpio -o -H newc --quiet --owner 0:0) > "$out/initrd.cpio"
	basename "$deb" > "$out/version"
	rm -rf "$out/x" "$out/ird"
}

update=
while getopts u o; do
	case $o in
	u) update=1 ;;
	*) exit 64 ;;
	esac
done

for tool in apt-get busybox cpio dpkg-deb flock qemu-system-x86_64 setpriv strip xz zstd; do
	command -v "$tool" > /dev/null || die "$tool is missing: ./dev softroce installs it"
done

mkdir -p "$cache"
exec 9> "$cache/lock"
flock 9
# Under the lock what is half made was left by a caller that was killed; guests of last week are of no checkout any more.
find "$cache" -mindepth 1 -maxdepth 1 \( -name 'making.*' -o -name 'download.*' -o -name 'guest-*' -mtime +7 \) -exec rm -rf {} +

[ -z "$update" ] || download_package
deb=${ESCROW_GUEST_DEB:-$(cached_package)}
if [ -z "$deb" ]; then
	download_package
	deb=$(cached_package)
fi
[ -f "$deb" ] || die "no such package: $deb"

digest=$({ basename "$deb"; cat "$here/init" "$here/guest.sh"; } | sha256sum | cut -c 1-12)
guest=$cache/guest-$digest
if [ ! -d "$guest" ]; then
	tmp=$(mktemp -d "$cache/making.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	make_guest "$deb" "$tmp"
	chmod 755 "$tmp"
	mv "$tmp" "$guest"
	trap - EXIT
fi
touch "$guest"
echo "$guest"
