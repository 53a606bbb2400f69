package netsetup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Sweep ends the dnsmasq of each VM that known does not report, and removes its folder. The
// rest of a VM's network went with the namespace of its pod. Call it once, before any other method.
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
		s.log.InfoContext(ctx, "ending dnsmasq of a removed VM", "id", e.Name())
		errs = append(errs, s.stop(ctx, Plan{ID: e.Name()}))
	}
	return errors.Join(errs...)
}
