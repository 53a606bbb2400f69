package netsetup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Sweep undoes the network of each VM that known does not report, by the Plan that Taps and Apply have kept. So the pods
// of VMs whose records are lost get their addresses back.
func (s *Setup) Sweep(ctx context.Context, known func(id string) bool) error {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list networks of VMs: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if known(e.Name()) {
			continue
		}
		s.log.InfoContext(ctx, "undoing the network of a VM without a record", "id", e.Name())
		errs = append(errs, s.sweepOne(ctx, e.Name()))
	}
	return errors.Join(errs...)
}

func (s *Setup) sweepOne(ctx context.Context, id string) error {
	switch p, ok, err := s.kept(id); {
	case err != nil:
		return err
	case ok:
		return s.Undo(ctx, p)
	}
	p := Plan{ID: id}
	return errors.Join(s.stop(ctx, p), s.forget(p))
}
