#!/bin/sh
# boot.sh ROOT PAYLOAD boots the Debian in the folder ROOT as a machine of namespaces: systemd is its
# first process. It runs in new mount, PID, UTS, IPC, network and cgroup namespaces, whose end takes all
# mounts and processes along.
#
# The machine sees the cgroups of this one, v1 or v2, below those of this process. It has no hardware
# but loop devices, and changes no setting of the kernel but those of its network.
set -eu
root=$1 payload=$2

mount --make-rprivate /
mount --bind "$root" "$root"
mount --bind "$payload" "$root/opt/payload"
cd "$root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
while read -r name major minor; do mknod -m 0666 "dev/$name" c "$major" "$minor"; done <<END
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
kmsg 1 11
tty 5 0
END
mkdir dev/net dev/pts dev/shm
mknod -m 0666 dev/net/tun c 10 200
mknod -m 0666 dev/fuse c 10 229
# The kernel's loop devices, for block volumes: a kubelet attaches one to each.
mknod -m 0660 dev/loop-control c 10 237
for n in $(seq 0 255); do mknod -m 0660 "dev/loop$n" b 7 "$n"; done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs tmpfs dev/shm

# What a kubelet insists on is the settings of another machine: it sees files with its values.
mkdir run/sysctl
mount --bind proc/sys/net run/sysctl
mount --bind -o ro proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount --move run/sysctl proc/sys/net
while read -r name value; do
	echo "$value" >"run/sysctl.value"
	file=run/sysctl/$(echo "$name" | tr / .)
	cp run/sysctl.value "$file"
	mount --bind "$file" "proc/sys/$name"
done <<END
kernel/keys/root_maxbytes 25000000
kernel/keys/root_maxkeys 1000000
kernel/panic 10
kernel/panic_on_oops 1
vm/overcommit_memory 1
vm/panic_on_oom 0
END

if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
	unified=1
	mount -t cgroup2 cgroup2 sys/fs/cgroup
else
	unified=0
	mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
	awk '$3 == "cgroup" { print $2 }' /proc/mounts | while read -r path; do
		name=$(basename "$path")
		mkdir "sys/fs/cgroup/$name"
		case $name in
		systemd) mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd ;;
		*) mount -t cgroup -o "$name" cgroup "sys/fs/cgroup/$name" ;;
		esac
	done
fi

pivot_root . mnt
umount -l /mnt
# As systemd has it where it is not in a container: mounts arrive in services' mount namespaces.
mount --make-rshared /
# On v1, systemd would use v2 for itself, where a kubelet does not look for slices.
exec env -i container=other /lib/systemd/systemd --log-target=console --show-status=1 \
	systemd.unified_cgroup_hierarchy="$unified" systemd.legacy_systemd_cgroup_controller=1
