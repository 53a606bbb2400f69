package disk

import (
	"errors"
	"testing"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestReservations: what one disk uses no other disk can, not even of the same VM, until it is dropped.
func TestReservations(t *testing.T) {
	disk := func(id, name string) Disk {
		return Disk{Disk: vmspec.Disk{Name: name}, VM: record.Container{ID: id}}
	}
	reader := func(id, name string) Disk {
		return Disk{Disk: vmspec.Disk{Name: name, ReadOnly: true}, VM: record.Container{ID: id}}
	}
	sharer := func(id, name string) Disk {
		return Disk{Disk: vmspec.Disk{Name: name, Shareable: true}, VM: record.Container{ID: id}}
	}
	var r reservations
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
		{reader("3", "x"), "a", ErrInUse},
		{reader("3", "x"), "c", nil},
		{reader("4", "x"), "c", nil},
		{disk("2", "x"), "c", ErrInUse},
		{sharer("5", "x"), "c", ErrInUse},
		{sharer("5", "x"), "d", nil},
		{sharer("6", "x"), "d", nil},
		{reader("3", "y"), "d", ErrInUse},
		{disk("2", "y"), "d", ErrInUse},
	} {
		if err := r.free(step.k, step.of); !errors.Is(err, step.want) {
			t.Errorf("%s for %s of %s: %v, want %v", step.of, step.k.Name, step.k.VM.ID, err, step.want)
		}
		if err := r.take(step.k, step.of); !errors.Is(err, step.want) {
			t.Errorf("%s to %s of %s: %v, want %v", step.of, step.k.Name, step.k.VM.ID, err, step.want)
		}
	}
	r.drop(disk("1", "x"))
	r.drop(disk("1", "x"))
	if err := r.take(disk("1", "y"), "a"); err != nil {
		t.Errorf("what was dropped: %v", err)
	}
	r.drop(reader("3", "x"))
	if err := r.free(disk("1", "y"), "c"); !errors.Is(err, ErrInUse) {
		t.Errorf("one of two readers was dropped: %v", err)
	}
	if err := r.free(disk("1", "y"), "b"); !errors.Is(err, ErrInUse) {
		t.Errorf("another's was dropped: %v", err)
	}
}
