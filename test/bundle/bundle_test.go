//go:build packages

// Package bundle_test builds the image with all software of a node twice, unpacks it into an empty root, and runs
// its programs there.
package bundle_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/deploy/bundle"
)

var programs = flag.String("programs", "../../bin/packages/programs", "the `folder` with the programs of a node")

const mebibyte = 1 << 20

// lists is the folder of the lists of packages.
func lists() bundle.Lists { return bundle.Lists{FS: os.DirFS("../../deploy/bundle/lists")} }

func build(ctx context.Context, t *testing.T) *bundle.Bundle {
	t.Helper()
	archives, err := bundle.MachineArchives(ctx)
	assert.NilError(t, err)
	cache, err := os.UserCacheDir()
	assert.NilError(t, err)
	made, err := bundle.Build(ctx, bundle.Options{
		Lists: lists(), Architecture: "amd64", Programs: *programs, Version: "test",
		Cache: filepath.Join(cache, "nodevirt", "bundle"), Scratch: t.TempDir(), Archives: archives,
	})
	assert.NilError(t, err)
	return made
}

func digest(t *testing.T, img v1.Image) string {
	t.Helper()
	d, err := img.Digest()
	assert.NilError(t, err)
	return d.String()
}

func TestBundle(t *testing.T) {
	made := build(t.Context(), t)
	t.Run("two builds give one digest", func(t *testing.T) {
		assert.Equal(t, digest(t, build(t.Context(), t).Image), digest(t, made.Image))
	})
	t.Run("size", func(t *testing.T) { testSize(t, made.Image) })
	t.Run("bill of materials", func(t *testing.T) { testBOM(t, made) })
	root := unpack(t, made.Image)
	t.Run("programs", func(t *testing.T) { testPrograms(t, root) })
	t.Run("TPM", func(t *testing.T) { testTPM(t, root) })
	t.Run("block drivers", func(t *testing.T) { testBlockDrivers(t, root) })
	t.Run("QEMU's modules", func(t *testing.T) { testModules(t, root) })
	t.Run("libraries", func(t *testing.T) { testLibraries(t, root) })
}

// testSize bounds the image without what only emulated guests need.
func testSize(t *testing.T, img v1.Image) {
	manifest, err := img.Manifest()
	assert.NilError(t, err)
	var size int64
	for _, layer := range manifest.Layers {
		name := layer.Annotations[bundle.LayerAnnotation]
		t.Logf("layer %s: %.1f MiB", name, float64(layer.Size)/mebibyte)
		if name != "aarch64" {
			size += layer.Size
		}
	}
	if size > 200*mebibyte {
		t.Errorf("the image has %d MiB without the layer aarch64, more than 200", size/mebibyte)
	}
}

func testBOM(t *testing.T, made *bundle.Bundle) {
	packages, err := lists().Lock("amd64")
	assert.NilError(t, err)
	licences := map[string]int{}
	for _, c := range *made.BOM.Components {
		if c.Licenses != nil {
			licences[c.Name+" "+c.Version] = len(*c.Licenses)
		}
	}
	for _, p := range packages {
		if licences[p.Name+" "+p.Version] == 0 {
			t.Errorf("the bill of materials has no licence of %s %s", p.Name, p.Version)
		}
	}
	for _, name := range []string{"nodevirt", "nodevirt-shim", "std"} {
		if !slices.ContainsFunc(*made.BOM.Components, func(c cyclonedx.Component) bool { return c.Name == name }) {
			t.Errorf("the bill of materials has no %s", name)
		}
	}
}
