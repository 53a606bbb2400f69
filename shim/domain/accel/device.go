package accel

import "golang.org/x/sys/unix"

const device = "/dev/kvm"

// DeviceGroup returns the group in which an unprivileged QEMU must run to open
// /dev/kvm. There is none if every user can open the device, if its group can't
// open it, or if there is no device.
func DeviceGroup() (gid uint32, needed bool) {
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		return 0, false
	}
	const groupRW, otherRW = 0o060, 0o006
	if st.Mode&otherRW == otherRW || st.Mode&groupRW != groupRW {
		return 0, false
	}
	return st.Gid, true
}
