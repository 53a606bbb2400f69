package cluster

import (
	"os"
	"path/filepath"
	"testing"
)

// TestManifests: without flags of the controller, the manifests are the checkout's; with flags, an overlay
// is in the cluster's folder.
func TestManifests(t *testing.T) {
	o := Options{Dir: t.TempDir(), Bin: "/checkout/bin"}
	if got, err := o.manifests(); got != "/checkout/deploy" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	o.Controller = []string{"-network-disks"}
	got, err := o.manifests()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(got, "kustomization.yaml")); err != nil {
		t.Error(err)
	}
}
