package ceph

import "strconv"

// config is the configuration of the daemons, and of clients beside QEMU, of a cluster in a folder. It has
// one copy of all data, little memory, and nothing outside the folder.
func config(dir, id, address string) string {
	return `[global]
fsid = ` + id + `
mon host = [v2:` + address + port + `]
mon initial members = a
keyring = ` + dir + `/keyring
run dir = ` + dir + `
crash dir = ` + dir + `
admin socket =
log file =
log to stderr = true
mon cluster log file =
pid file =
public addr = ` + address + `
cluster addr = ` + address + `
ms bind msgr1 = false
ms bind ipv6 = false
auth allow insecure global id reclaim = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
[mon]
mon data = ` + dir + `/mon
mon allow pool size one = true
mon data avail crit = 1
mon memory target = 268435456
[osd]
osd data = ` + dir + `/osd
keyring = ` + dir + `/osd/keyring
osd objectstore = bluestore
osd memory target = 939524096
bluestore block size = ` + strconv.Itoa(size) + `
bluestore cache autotune = false
bluestore cache size = 67108864
`
}
