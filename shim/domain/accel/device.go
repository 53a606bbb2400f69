package accel

import "golang.org/x/sys/unix"

const device = "/dev/kvm"

// DeviceGroup is the group whose members can open /dev/kvm, where one is
// needed: an unprivileged QEMU must run in it to use KVM. It is not needed
// where everybody can open the device, and doesn't help where its group
// can't, or where there is no device.
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
