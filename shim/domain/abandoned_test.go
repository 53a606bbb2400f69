package domain

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/needs"
)

const (
	abandonedUID = 1_900_060_000 // and the two after it
	foreignUID   = 64055
)

// stateFolder creates a folder of a domain with QEMU's files, of a user.
func stateFolder(t *testing.T, state, folder string, uid int) {
	t.Helper()
	assert.NilError(t, os.MkdirAll(filepath.Join(state, folder, ".cache/mesa"), 0o755))
	for _, file := range []string{masterKey, "monitor.sock", ".cache/mesa/index"} {
		assert.NilError(t, os.WriteFile(filepath.Join(state, folder, file), []byte("key"), 0o600))
	}
	assert.NilError(t, os.Chown(filepath.Join(state, folder), uid, uid))
}

func exists(t *testing.T, path string, want bool) {
	t.Helper()
	if _, err := os.Lstat(path); (err == nil) != want {
		t.Errorf("%s exists: %v; want %v", path, err == nil, want)
	}
}

func TestAbandoned(t *testing.T) {
	needs.Parts(t, "root")
	state, run := t.TempDir(), t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	assert.NilError(t, os.WriteFile(outside, nil, 0o600))
	gone := []string{"channel/target/domain-1-default_virt-launche", "domain-1-default_virt-launche", "ram/1-default_virt-launche"}
	for _, folder := range gone {
		stateFolder(t, state, folder, abandonedUID)
		assert.NilError(t, os.Symlink(outside, filepath.Join(state, folder, "link")))
		assert.NilError(t, os.Symlink(filepath.Dir(outside), filepath.Join(state, folder, ".cache", "folder")))
	}
	const recorded = "domain-2-recorded"
	stays := []string{
		"domain-1-foreign", recorded, "ram/2-recorded", "domain-3-running", "domain-3-beyond",
		"nvram", "domain-x",
	}
	users := map[string]int{
		"domain-1-foreign": foreignUID, "domain-3-running": abandonedUID + 1, "domain-3-beyond": abandonedUID + 3,
	}
	for _, folder := range stays {
		uid, other := users[folder]
		if !other {
			uid = abandonedUID
		}
		stateFolder(t, state, folder, uid)
	}
	assert.NilError(t, os.Symlink(filepath.Dir(outside), filepath.Join(state, "domain-4-link")))
	assert.NilError(t, os.WriteFile(filepath.Join(state, "domain-5-file"), nil, 0o600))
	stays = append(stays, "domain-4-link", "domain-5-file")
	assert.NilError(t, os.MkdirAll(filepath.Join(run, "qemu"), 0o755))
	status := fmt.Sprintf("<domstatus state='running' pid='7'><libDir path='/var/lib/libvirt/qemu/%s'/><domain/></domstatus>", recorded)
	assert.NilError(t, os.WriteFile(filepath.Join(run, "qemu/recorded.xml"), []byte(status), 0o600))
	assert.NilError(t, os.WriteFile(filepath.Join(run, "qemu/garbage.xml"), []byte("<domstatus"), 0o600))

	qemu := exec.CommandContext(t.Context(), "sleep", "60")
	qemu.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: abandonedUID + 1, Gid: abandonedUID + 1}}
	assert.NilError(t, qemu.Start())
	a := Abandoned{State: state, Run: run, UIDBase: abandonedUID, UIDCount: 3}
	removed, err := a.Remove()
	assert.NilError(t, err)
	slices.Sort(removed)
	assert.DeepEqual(t, removed, gone)
	for _, folder := range gone {
		exists(t, filepath.Join(state, folder), false)
	}
	for _, path := range append(stays, recorded+"/"+masterKey, "domain-3-running/"+masterKey, "domain-1-foreign/"+masterKey) {
		exists(t, filepath.Join(state, path), true)
	}
	exists(t, outside, true)

	assert.NilError(t, qemu.Process.Kill())
	_ = qemu.Wait() // it was killed
	removed, err = a.Remove()
	assert.NilError(t, err)
	assert.DeepEqual(t, removed, []string{"domain-3-running"})
	a.State = filepath.Join(state, "none")
	removed, err = a.Remove()
	assert.NilError(t, err)
	assert.Equal(t, len(removed), 0)
}

// A guest that has compromised its QEMU does not delay libvirtd: the key is gone, the rest is reported.
func TestAbandonedIsBounded(t *testing.T) {
	needs.Parts(t, "root")
	state := t.TempDir()
	deep, many := "domain-1-deep", "domain-2-many"
	stateFolder(t, state, deep, abandonedUID)
	assert.NilError(t, os.MkdirAll(filepath.Join(state, deep, strings.Repeat("d/", maxAbandonedDepth+1)), 0o755))
	a := Abandoned{State: state, Run: t.TempDir(), UIDBase: abandonedUID, UIDCount: 3}
	removed, err := a.Remove()
	assert.ErrorContains(t, err, "domain-1-deep of a domain that is gone: more than 64 folders in each other; remove it by hand")
	assert.Equal(t, len(removed), 0)
	exists(t, filepath.Join(state, deep), true)
	exists(t, filepath.Join(state, deep, masterKey), false)

	stateFolder(t, state, many, abandonedUID)
	root, err := os.OpenRoot(state)
	assert.NilError(t, err)
	defer root.Close()
	r := remover{left: 2}
	assert.ErrorContains(t, r.remove(root, many), "files; remove it by hand")
	exists(t, filepath.Join(state, many), true)
	exists(t, filepath.Join(state, many, masterKey), false)
	r.left = 4
	assert.NilError(t, r.remove(root, many))
	exists(t, filepath.Join(state, many), false)
}
