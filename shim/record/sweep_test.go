package record_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSweep(t *testing.T) {
	s, root := open(t)
	if err := s.PutSandbox(sandbox()); err != nil {
		t.Fatal(err)
	}
	if err := s.PutContainer(container()); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(root, "containers", idB, ".disk.qcow2")
	if err := os.WriteFile(own, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := files(t, root)
	for _, left := range []string{
		filepath.Join("sandboxes", "."+idA+".json123"),
		filepath.Join("sandboxes", "."+idA+".intent4567"),
		filepath.Join("containers", idB, ".record.json89"),
	} {
		if err := os.WriteFile(filepath.Join(root, left), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, files(t, root)); diff != "" {
		t.Errorf("before and after (-want +got):\n%s", diff)
	}
}
