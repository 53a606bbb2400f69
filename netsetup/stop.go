package netsetup

import (
	"context"
	"fmt"
	"os"
)

// stop ends the guest's dnsmasq, waits until it is gone, and removes its folder.
func (s *Setup) stop(ctx context.Context, p Plan) error {
	if err := s.server(p).End(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(s.folder(p)); err != nil {
		return fmt.Errorf("remove folder of dnsmasq: %w", err)
	}
	return nil
}
