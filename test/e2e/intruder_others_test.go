package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestABrokenQEMUHasNoOtherVM: a process with a VM's user can use no socket of the node, no file of
// another VM, and no other process.
func TestABrokenQEMUHasNoOtherVM(t *testing.T) {
	t.Parallel()
	// libvirt names folders after the first letters of a domain's name.
	named := func(name string) func(*runtimeapi.PodSandboxConfig) {
		return func(c *runtimeapi.PodSandboxConfig) { c.Metadata.Name = name }
	}
	c, other := vmPod(t, named("intruder")).vm(suite.agent).start(), vmPod(t, named("victim"), annotated(map[string]string{
		vmspec.AnnotationDiskMode: string(vmspec.ModeISCSI), "nodevirt.io/vmi": displayed,
	})).vm(suite.agent).start()
	c.up()
	other.up()
	var actions []string
	for line := range strings.Lines(inNode(t, "cat", "/proc/net/unix")) {
		// See proc(5): address, users, protocol, flags, type, state, inode, path.
		if f := strings.Fields(line); len(f) == 8 {
			network := map[string]string{"0001": "unix", "0002": "unixgram", "0005": "unixpacket"}[f[4]]
			actions = append(actions, network+" "+f[7])
		}
	}
	if len(actions) < 10 {
		t.Fatalf("the node has the sockets %q", actions)
	}
	for _, dir := range []string{"nodevirt", "libvirt", "log", "podlogs", "run"} {
		actions = append(actions, filesIn(t, filepath.Join(suite.Dir(), dir))...)
	}
	for _, pid := range []int{other.pid(), 1} {
		process := fmt.Sprintf("/proc/%d/", pid)
		for _, file := range []string{"maps", "mem", "environ", "fd", "root", "cwd", "map_files"} {
			actions = append(actions, "read "+process+file)
		}
		for _, what := range []string{"signal", "trace", "limit"} {
			actions = append(actions, fmt.Sprint(what, " ", pid))
		}
	}
	id, name := c.id, c.info().VM.Domain.Name
	for _, done := range c.intruder().succeeds(actions...) {
		own := strings.Contains(done, id) || strings.Contains(done, name[:20])
		if !own && !harmless(done) {
			t.Errorf("a VM's process can %s", done)
		}
	}
}

// filesIn are actions on the files and folders of a tree of the node.
func filesIn(t *testing.T, dir string) (actions []string) {
	t.Helper()
	assert.NilError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // it went meanwhile
		case err != nil:
			return err
		case e.IsDir():
			actions = append(actions, "create "+path)
		case e.Type().IsRegular():
			actions = append(actions, "read "+path, "write "+path)
		}
		return nil
	}))
	return actions
}

// harmless reports whether each user may do an action. The files hold numbers of processes and locks.
func harmless(action string) bool {
	what, path, _ := strings.Cut(action, " ")
	if what != "read" {
		return false
	}
	return filepath.Ext(path) == ".pid" || filepath.Ext(path) == ".lock" || filepath.Base(filepath.Dir(path)) == "netns"
}
