#!/bin/sh
# Fills the folder $1 with a Debian root file system. $2 is the mirror, $3 the release, $4 a file
# with apt's sources, $5 a folder that keeps packages between runs, $6 a folder that describes the
# guest: root has files to copy into the root, packages, enabled and masked the names of packages and
# of systemd's units.
#
# It runs in a separate mount and PID namespace: its end takes all mounts and processes along.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
root=$1 mirror=$2 release=$3 sources=$4 packages=$5 guest=$6

archives=$root/var/cache/apt/archives
mkdir -p "$archives"
mount --bind "$packages" "$archives"

echo "debootstrap" >&2
debootstrap --variant=minbase --include=ca-certificates,dbus,kmod,netbase,systemd-sysv,udev \
	"$release" "$root" "$mirror" >&2

# Documents and translations take half of the space and are not needed here. No service starts while
# the root is built.
cp -R "$guest/root"/. "$root"
cat >"$root/etc/dpkg/dpkg.cfg.d/small" <<EOF
force-unsafe-io
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/man/*
path-exclude=/usr/share/locale/*
EOF
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 0755 "$root/usr/sbin/policy-rc.d"
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp "$sources" "$root/etc/apt/sources.list"
mount -t proc proc "$root/proc"

# The initial RAM disk holds what it takes to reach a virtio disk, and no more.
mkdir -p "$root/etc/initramfs-tools/conf.d"
printf 'MODULES=list\nCOMPRESS=lz4\n' >"$root/etc/initramfs-tools/conf.d/small"
printf 'virtio_pci\nvirtio_blk\n' >"$root/etc/initramfs-tools/modules"

echo "packages" >&2
in_root() { chroot "$root" "$@" >&2; }
in_root apt-get -q update
in_root apt-get -q -y --no-install-recommends upgrade
in_root apt-get -q -y --no-install-recommends install lz4
# shellcheck disable=SC2046 # the names are meant to be split
in_root apt-get -q -y --no-install-recommends install $(cat "$guest/packages")

echo "settings" >&2
rm "$root/usr/sbin/policy-rc.d"
# shellcheck disable=SC2046
in_root systemctl enable $(cat "$guest/enabled")
# What a guest that lives for minutes doesn't need, and what takes long under emulation.
# shellcheck disable=SC2046
in_root systemctl mask $(cat "$guest/masked")
# Each guest makes its own identity.
: >"$root/etc/machine-id"
rm -f "$root"/etc/ssh/ssh_host_* "$root/var/lib/dbus/machine-id"
basename "$guest" >"$root/etc/hostname"

umount "$root/proc" "$archives"
rm -rf "$root"/var/lib/apt/lists/* "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/* \
	"$root"/var/cache/apt/*.bin
find "$root/var/log" -type f -delete
