package disk

import (
	"errors"
	"testing"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestHeld: what is one machine's is none of its other disks' either, until it is given back.
func TestHeld(t *testing.T) {
	disk := func(id, name string) Disk {
		return Disk{Disk: vmspec.Disk{Name: name}, VM: record.Container{ID: id}}
	}
	var h held
	for _, step := range []struct {
		k    Disk
		of   string
		want error
	}{
		{disk("1", "x"), "a", nil},
		{disk("1", "x"), "a", nil}, // a shim that starts again
		{disk("2", "x"), "a", ErrInUse},
		{disk("1", "y"), "a", ErrInUse},
		{disk("2", "x"), "b", nil},
	} {
		if err := h.free(step.k, step.of); !errors.Is(err, step.want) {
			t.Errorf("%s for %s of %s: %v, want %v", step.of, step.k.Name, step.k.VM.ID, err, step.want)
		}
		if err := h.take(step.k, step.of); !errors.Is(err, step.want) {
			t.Errorf("%s to %s of %s: %v, want %v", step.of, step.k.Name, step.k.VM.ID, err, step.want)
		}
	}
	h.drop(disk("1", "x"))
	h.drop(disk("1", "x"))
	if err := h.take(disk("1", "y"), "a"); err != nil {
		t.Errorf("what was given back: %v", err)
	}
	if err := h.free(disk("1", "y"), "b"); !errors.Is(err, ErrInUse) {
		t.Errorf("another's was given back: %v", err)
	}
}
