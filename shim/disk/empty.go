package disk

import (
	"context"
	"os"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/domain"
)

// empty is a disk without content at first: a sparse file in the container's folder,
// which takes as much room as the guest has written.
type empty struct {
	passive
	blank blankMaker
	files folders
}

func (e empty) create(_ context.Context, k Disk) error {
	return e.blank.Blank(k.Size, e.writable(k))
}

func (e empty) attach(_ context.Context, k Disk) (map[string][]*os.File, error) {
	f, err := openOverlay(e.writable(k))
	if err != nil {
		return nil, err
	}
	return map[string][]*os.File{k.group("top"): {f}}, nil
}

func (e empty) describe(k Disk) domain.Disk {
	return domain.Disk{Layers: []domain.Layer{{
		Format: string(imageunpack.QCOW2), Path: e.writable(k), FDGroup: k.group("top"), ReadOnly: k.ReadOnly,
	}}}
}

func (e empty) writable(k Disk) string { return e.files.path(k, "disk-"+k.Name+".qcow2") }
