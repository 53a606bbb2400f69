package rawdisk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vminfo"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestClones: VMs of an image are clones of one base, which no guest writes and which
// goes with the image.
func TestClones(t *testing.T) {
	image, err := push(t.Context(), "clones", "cloned")
	assert.NilError(t, err)
	had := bases(t)
	var paths []string
	for n := range 3 {
		p := runPod(t, fmt.Sprintf("clone-%d", n))
		id, err := p.create(t.Context(), image)
		assert.NilError(t, err)
		_, err = suite.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
		assert.NilError(t, err)
		paths = append(paths, disk(t, id))
	}
	if now := bases(t); now != had+1 {
		t.Errorf("%d bases were made for three VMs of an image", now-had)
	}
	written := newest(t) // a base that is on disk gets another name
	before := digests(t)
	overwrite(t, paths[0], "of the first guest")
	if after := digests(t); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("before %v, after %v", before, after)
	}
	if a, b := digest(t, paths[0]), digest(t, paths[1]); a == b || b != digest(t, paths[2]) {
		t.Error("clones have writes in common")
	}
	if n, err := suite.Sample(t.Context(), "nodevirt_expanded_disks"); err != nil || int(n) != had+1 {
		t.Errorf("nodevirt_expanded_disks is %v, %v", n, err)
	}

	// What the suite is asked at its end would see a write to the base.
	_, err = suite.Pristine(t.Context())
	assert.NilError(t, err)
	overwrite(t, written, "w")
	if _, err := suite.Pristine(t.Context()); err == nil || !strings.Contains(err.Error(), filepath.Base(written)) {
		t.Errorf("the base %s was written: %v", written, err)
	}

	_, err = suite.images.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	assert.NilError(t, err)
	wait.Success(t, "bases that nothing uses to go", func(context.Context) error {
		if n := bases(t); n != had {
			return fmt.Errorf("%d bases are left; want %d", n, had)
		}
		return nil
	})
	if digest(t, paths[1]) != digest(t, paths[2]) {
		t.Error("clones differ after their base went")
	}
}

// newest is the base that was made last, when it is on disk.
func newest(t *testing.T) (path string) {
	t.Helper()
	wait.Success(t, "the bases to be used no more", func(context.Context) error {
		all, err := filepath.Glob(filepath.Join(suite.Dir(), "nodevirt/expanded/*"))
		assert.NilError(t, err)
		var last time.Time
		for _, p := range all {
			info, err := os.Stat(p)
			if err != nil {
				return err
			}
			if info.ModTime().After(last) {
				path, last = p, info.ModTime()
			}
		}
		if filepath.Ext(path) != ".raw" {
			return fmt.Errorf("the newest of %v is not on disk", all)
		}
		return nil
	})
	return path
}

func overwrite(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	assert.NilError(t, err)
	_, err = f.WriteAt([]byte(text), 400)
	assert.NilError(t, errors.Join(err, f.Close()))
}

// disk is the file of a VM's disk.
func disk(t *testing.T, id string) string {
	t.Helper()
	reply, err := suite.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	assert.NilError(t, err)
	info, err := vminfo.Read(reply.Info)
	assert.NilError(t, err)
	return info.VM.Disks[0].Path
}

// digests are those of the bases and of the disks in containerd's snapshots.
func digests(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"nodevirt/expanded/*", "containerd/*overlayfs/snapshots/*/fs/disk"} {
		paths, err := filepath.Glob(filepath.Join(suite.Dir(), pattern))
		assert.NilError(t, err)
		if len(paths) == 0 {
			t.Fatalf("nothing is like %s", pattern)
		}
		for _, path := range paths {
			all[filepath.Base(filepath.Dir(path))] += digest(t, path)
		}
	}
	return all
}

func digest(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	assert.NilError(t, err)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
