# Functions that the guest's scripts share.

export PATH=/bin

# say prints a line for the reader of the console; tests wait for such lines.
say() { echo "nodevirt guest: $*" >/dev/console; }

# switch says whether a word is on the kernel's command line.
switch() {
	read -r cmdline </proc/cmdline
	case " $cmdline " in *" $1 "*) return 0 ;; esac
	return 1
}

# option prints an option of an interface's DHCP lease.
option() { [ -e "/run/dhcp.$1" ] && sed -n "s/^$2=//p" "/run/dhcp.$1"; }

# address prints the first IPv4 address of an interface.
address() { ip -4 -o addr show dev "$1" 2>/dev/null | awk '{ sub("/.*", "", $4); print $4; exit }'; }

# publish sets the hostname (the seed's, else DHCP's, else the guest's own) and writes the page "/".
publish() {
	[ -s /run/seed.hostname ] && read -r name </run/seed.hostname || name=$(option eth0 hostname)
	[ -n "$name" ] || read -r name </etc/hostname
	hostname "$name"
	read -r mtu 2>/dev/null </sys/class/net/eth0/mtu
	echo "ip=$(address eth0) host=$name mtu=$mtu dns=$(option eth0 dns)" >/www/index.html
}

# page starts a CGI answer of a type, text by default.
page() { printf 'Content-Type: %s\r\n\r\n' "${1:-text/plain}"; }

# failed answers a CGI request with an error and ends the script.
failed() {
	printf 'Status: 500\r\nContent-Type: text/plain\r\n\r\n%s\n' "$*"
	exit 0
}

# afterwards runs a command, in the background, when the CGI answer is on its way: the process that
# serves this connection has handed it to the kernel and ended, and the kernel has had some time.
afterwards() {
	{
		while [ -d "/proc/$PPID" ]; do usleep 20000; done
		usleep 300000
		"$@"
	} </dev/null >/dev/null 2>&1 &
}

# mount_disk mounts the boot disk's file system at /disk. The guest runs from RAM, so what it
# writes elsewhere is gone after a reboot; what it writes here lives as long as its disk.
mount_disk() {
	[ -e /disk/syslinux.cfg ] && return 0
	for device in /dev/vd?1 /dev/sd?1; do
		[ -b "$device" ] && mount -t vfat -o umask=0 "$device" /disk 2>/dev/null || continue
		[ -e /disk/syslinux.cfg ] && return 0
		umount /disk
	done
	return 1
}
