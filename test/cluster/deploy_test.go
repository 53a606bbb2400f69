package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestManifests: without flags of the controller, the manifests are the checkout's; with flags
// or a tag, an overlay is in the cluster's folder.
func TestManifests(t *testing.T) {
	o := Options{Dir: t.TempDir(), Bin: "/checkout/bin"}
	r := Release{Manifests: "/checkout/deploy"}
	if got, err := o.manifests(r); got != "/checkout/deploy" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	o.Controller, r.Tag = []string{"-network-disks"}, "older"
	got, err := o.manifests(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(got, "kustomization.yaml"))
	for _, want := range []string{"-network-disks", `"newTag":"older"`} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s, %v", want, text, err)
		}
	}
}
