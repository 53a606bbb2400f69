package netsetup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Sweep ends the dnsmasqs of machines that are not known any more, and removes
// their folders. What else there was of them went with their pods' namespaces.
// It is for the caller's start, before any other call.
func (s *Setup) Sweep(ctx context.Context, known func(id string) bool) error {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list machines' networks: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if known(e.Name()) {
			continue
		}
		s.log.InfoContext(ctx, "ending dnsmasq of a machine that is gone", "id", e.Name())
		errs = append(errs, s.stop(ctx, Plan{ID: e.Name()}))
	}
	return errors.Join(errs...)
}
