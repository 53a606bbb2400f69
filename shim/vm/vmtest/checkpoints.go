package vmtest

import (
	"context"
	"os"

	"github.com/nodevirt/nodevirt/shim/checkpoint"
)

// Checkpoints is a fake of package unpack's Unpacker, whose process is the test's.
type Checkpoints struct{ script *Script }

// NewCheckpoints returns what decompresses checkpoints.
func NewCheckpoints(s *Script) *Checkpoints { return &Checkpoints{script: s} }

// Disk implements unpack's.
func (c *Checkpoints) Disk(
	ctx context.Context, _ uint32, files checkpoint.Files, d checkpoint.Disk, _ int64, to *os.File, started func(pid int) error,
) error {
	if err := c.script.enter(ctx, "Checkpoints.Disk"); err != nil {
		return err
	}
	if err := started(os.Getpid()); err != nil {
		return err
	}
	return checkpoint.UnpackDisk(ctx, files, d, to)
}
