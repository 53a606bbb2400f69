package record

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// temporary matches the name of a file that a write has created and not yet renamed.
var temporary = regexp.MustCompile(`^\.(record\.json|[0-9a-f]{64}\.(json|intent))\d+$`)

// Sweep removes the temporary files of interrupted writes. Call it when the shim
// starts, before any write.
func (s *Store) Sweep() error {
	dirs := []string{s.sandboxes()}
	entries, err := os.ReadDir(s.containers())
	if err != nil {
		return fmt.Errorf("sweep records: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() && isID(e.Name()) {
			dirs = append(dirs, s.ContainerDir(e.Name()))
		}
	}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && dir != s.sandboxes() {
			continue // Refused reports it: one sick folder must not keep the node from its other VMs
		}
		if err != nil {
			return fmt.Errorf("sweep records: %w", err)
		}
		for _, e := range entries {
			if !temporary.MatchString(e.Name()) {
				continue
			}
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("sweep records: %w", err)
			}
		}
	}
	return nil
}
