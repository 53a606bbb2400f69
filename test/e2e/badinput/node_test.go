package badinput

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/node"
)

// testFullDisk has no room where containers keep their files.
func (s *suite) testFullDisk(t *testing.T, mode vmspec.Mode) {
	t.Helper()
	full := func(name, room string) badCase {
		return badCase{name: name, at: atCreate, code: codes.ResourceExhausted, before: fill(room)}
	}
	s.checkGroup(t, "full-disk", inMode(mode, []badCase{
		full("no room for the overlay", "size=8k"),
		full("no room for the record", "nr_inodes=2"),
	}))
}

// fill mounts a file system with little room, which a mount option says, on the folder of
// containers, for the node alone.
func fill(room string) func(*testing.T, *suite, *pod) func() {
	return func(t *testing.T, s *suite, _ *pod) func() {
		t.Helper()
		dir := filepath.Join(s.n.Dir(), "nodevirt", "containers")
		within := func(name string, args ...string) string {
			t.Helper()
			out, err := s.n.Output(t.Context(), name, args...)
			assert.NilError(t, err)
			return strings.TrimSpace(out)
		}
		within("mount", "-t", "tmpfs", "-o", room, "tmpfs", dir)
		return func() {
			t.Helper()
			if left := within("ls", "-A", dir); left != "" {
				t.Errorf("left in %s: %s", dir, left)
			}
			s.unmount(t, dir)
		}
	}
}

// testLibvirtdAway starts a VM without libvirtd, and another after it came back.
func (s *suite) testLibvirtdAway(t *testing.T) {
	before := s.census(t)
	p := s.run(t, "pod", nil)
	id, err := s.create(t, p, newContainer(s.disk, nil))
	assert.NilError(t, err)
	assert.NilError(t, s.n.Kill(t.Context(), node.Libvirtd, syscall.SIGKILL))
	troubled := s.census(t)
	a := readAnswers(t, "libvirtd-away")
	err = s.start(t, id)
	a.check(t, badCase{name: "start", code: codes.Unavailable}, err)
	s.wantStartError(t, id, err)
	s.wantNothingSince(t, troubled, "file")
	a.check(t, badCase{name: "remove", code: codes.Unavailable}, s.tryRemove(t, id))
	if golden.FlagUpdate() {
		a.write(t)
	}

	assert.NilError(t, s.n.Resume(t.Context(), node.Libvirtd))
	for err = s.tryRemove(t, id); status.Code(err) == codes.Unavailable; err = s.tryRemove(t, id) {
		time.Sleep(10 * time.Millisecond) // the shim finds libvirtd again within two seconds
	}
	assert.NilError(t, err)
	s.removeContainer(t, s.boot(t, p))
	s.remove(t, p)
	s.wantNothingSince(t, before, "process")
	if err := s.n.SameAgain(t.Context(), before, time.Minute); err != nil { // by the programs' names
		t.Error(err)
	}
}

func (s *suite) tryRemove(t *testing.T, id string) error {
	t.Helper()
	_, err := s.pods.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return err
}
