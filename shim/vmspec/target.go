package vmspec

// Target is a disk's place among those whose names begin like its own.
type Target struct {
	prefix string
	// Number counts from 0.
	Number int
}

// Targets are the disks' places, in their order: vda, vdb, … on virtio; sda, sdb, … on SATA and SCSI
// together. libvirt wants such names; guests mostly have the same.
func Targets(disks []Disk) []Target {
	count := map[string]int{}
	all := make([]Target, 0, len(disks))
	for _, d := range disks {
		prefix := "sd"
		if d.Bus == BusVirtio {
			prefix = "vd"
		}
		all = append(all, Target{prefix, count[prefix]})
		count[prefix]++
	}
	return all
}

// Name is the target's, such as vda.
func (t Target) Name() string { return t.prefix + letters(t.Number) }

// letters counts a, b, … z, aa, ab, …
func letters(n int) string {
	if n < 26 {
		return string(rune('a' + n))
	}
	return letters(n/26-1) + letters(n%26)
}
