package vmspec

import (
	"fmt"
	"strings"
)

// The prefixes of targets. SATA, SCSI and USB disks share one.
const (
	virtioPrefix = "vd"
	otherPrefix  = "sd"
)

// Targets returns libvirt's name of each disk: the one that the disk has, or the
// next free one of vda, vdb, … on virtio, and of sda, sdb, … on the other buses
// together. Guests mostly use the same names.
func Targets(disks []Disk) []string {
	taken := map[string]bool{}
	for _, d := range disks {
		taken[d.Target] = true
	}
	next := map[string]int{}
	all := make([]string, 0, len(disks))
	for _, d := range disks {
		name := d.Target
		for prefix := d.targetPrefix(); name == "" || d.Target == "" && taken[name]; next[prefix]++ {
			name = prefix + letters(next[prefix])
		}
		taken[name] = true
		all = append(all, name)
	}
	return all
}

func (d Disk) targetPrefix() string {
	if d.Bus == BusVirtio {
		return virtioPrefix
	}
	return otherPrefix
}

// OnBus reports whether a target is the name of a disk on a bus.
func OnBus(target string, bus Bus) bool {
	_, err := TargetUnit(target)
	return err == nil && strings.HasPrefix(target, Disk{Bus: bus}.targetPrefix())
}

// TargetUnit returns the number of a target among those with its prefix, from 0.
func TargetUnit(target string) (int, error) {
	text, ok := strings.CutPrefix(target, virtioPrefix)
	if !ok {
		text, ok = strings.CutPrefix(target, otherPrefix)
	}
	n := 0
	for _, c := range []byte(text) {
		if ok = ok && c >= 'a' && c <= 'z' && n < 1<<20; !ok {
			break
		}
		n = n*26 + int(c-'a') + 1
	}
	if !ok || n == 0 {
		return 0, fmt.Errorf("%q is not the name of a disk such as vda", target)
	}
	return n - 1, nil
}

// letters counts a, b, … z, aa, ab, …
func letters(n int) string {
	if n < 26 {
		return string(rune('a' + n))
	}
	return letters(n/26-1) + letters(n%26)
}
