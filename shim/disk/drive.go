package disk

import (
	"context"
	"os"

	"github.com/nodevirt/nodevirt/shim/domain"
)

// drive is an empty CD-ROM drive, which needs nothing of the node.
type drive struct{ passive }

func (drive) create(context.Context, Disk) error { return nil }

func (drive) attach(context.Context, Disk) (map[string][]*os.File, error) { return nil, nil }

func (drive) describe(Disk) domain.Disk { return domain.Disk{} }
