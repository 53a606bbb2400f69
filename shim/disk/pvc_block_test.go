package disk

import (
	"errors"
	"strings"
	"testing"
)

// TestLUNOnADisk: a device that takes no SCSI commands is refused before QEMU tries it.
func TestLUNOnADisk(t *testing.T) {
	n := newNode(t)
	d := n.volume(t, "tape", true, "x")
	d.LUN = true
	if err := n.Maker.Create(t.Context(), n.container(t, "c1", d), nil); !errors.Is(err, ErrVolume) ||
		!strings.Contains(err.Error(), "a lun needs a SCSI device") {
		t.Errorf("a lun on a disk: %v", err)
	}
}
