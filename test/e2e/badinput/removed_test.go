package badinput

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/wait"
)

// testImageRemoved removes an image while a VM is made of it, starts, and runs: the VM keeps its
// disk, and with the VM all of the image goes.
func (s *suite) testImageRemoved(t *testing.T) {
	const line = "from a removed image"
	// The guest reads its first sector again and again, as it restarts without end.
	img := imageOf(t, []images.File{{Name: "disk", Data: guest.BootSector(line, guest.Restart)}})
	before := s.census(t)
	unpacked := s.unpacked(t)
	for _, when := range []string{"waits for its start", "starts", "runs"} {
		t.Run("while a VM "+when, func(t *testing.T) {
			ref := s.push(t, "removed", img)
			s.pull(t, ref)
			if got := s.unpacked(t); got != unpacked+1 {
				t.Fatalf("%d disks are unpacked, want %d", got, unpacked+1)
			}
			p := s.run(t, "pod", nil)
			id := s.startRemoving(t, p, ref, when)
			s.wantLines(t, id, line, 2) // one may have been printed before
			s.wantRunning(t, id)
			if got := s.unpacked(t); got != unpacked+1 {
				t.Errorf("%d disks are unpacked while the VM runs, want %d", got, unpacked+1)
			}
			s.remove(t, p)
			s.awaitNothingSince(t, before)
			wait.Until(t, "the image's layer goes", func() bool { return s.unpacked(t) == unpacked })
		})
	}
}

// startRemoving starts a VM, and removes its image meanwhile.
func (s *suite) startRemoving(t *testing.T, p *pod, ref, when string) (id string) {
	t.Helper()
	id, err := s.create(t, p, newContainer(ref, nil))
	assert.NilError(t, err)
	if when == "waits for its start" {
		s.removeImage(t, ref)
	}
	start := func() error { return s.start(t, id) }
	if when == "starts" {
		release, done := s.held(t, "dnsmasq", start)
		s.removeImage(t, ref)
		release()
		err = <-done
	} else {
		err = start()
	}
	assert.NilError(t, err)
	if when == "runs" {
		s.wantLines(t, id, "", 1)
		s.removeImage(t, ref)
	}
	return id
}

// unpacked counts the disks that containerd has unpacked.
func (s *suite) unpacked(t *testing.T) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.n.Dir(), "containerd/*overlayfs/snapshots/*/fs/disk"))
	assert.NilError(t, err)
	return len(found)
}

// wantLines waits for a guest to have printed a text some times more.
func (s *suite) wantLines(t *testing.T, id, text string, more int) {
	t.Helper()
	reply, err := s.pods.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	assert.NilError(t, err)
	count := func() int {
		log, err := os.ReadFile(reply.GetStatus().GetLogPath())
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return bytes.Count(log, []byte(text+"\n"))
	}
	seen := count()
	wait.Until(t, "the guest prints", func() bool { return count() >= seen+more })
}

func (s *suite) wantRunning(t *testing.T, id string) {
	t.Helper()
	reply, err := s.pods.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	assert.NilError(t, err)
	if got := reply.GetStatus(); got.State != runtimeapi.ContainerState_CONTAINER_RUNNING || got.ImageRef == "" || got.ImageId == "" {
		t.Errorf("status without the image: %v", got)
	}
}
