package main

import (
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
)

// TestCompare: changes of owner, mode and kind, what has gone, and what tests left are found.
func TestCompare(t *testing.T) {
	before := census{
		"/dev": "drwxr-xr-x 0:0", "/sys/fs/cgroup/pids": "drwxr-xr-x 0:0",
		"/dev/null": "Dcrw-rw-rw- 0:0", "/dev/kvm": "Dcrw------- 0:0", "/etc/passwd": "-rw-r--r-- 0:0", "/run/agent.sock": "Srw------- 0:0", "nft 1: table inet own": "rule",
	}
	now := census{
		"/dev": "drwxr-xr-x 0:0", "/sys/fs/cgroup/pids": "drwxr-xr-x 0:0",
		"/sys/fs/cgroup/pids/nodevirt-1": "drwxr-xr-x 0:0", "/sys/fs/cgroup/pids/nodevirt-1/tasks": "-rw-r--r-- 0:0",
		"/dev/null": "Dcrw-rw-rw- 65534:0", "/dev/nodevirt-1-root": "Dbrw------- 5:5", "/dev/kvm": "Dcrw------- 0:0", "/run/daemon": "drwx------ 0:0", "nft 1: table ip nat": "rule",
	}
	assert.DeepEqual(t, compare(parse(before.text()), now), []string{
		"! /dev/null was Dcrw-rw-rw- 0:0, is Dcrw-rw-rw- 65534:0",
		"+ /dev/nodevirt-1-root Dbrw------- 5:5",
		"+ /sys/fs/cgroup/pids/nodevirt-1 drwxr-xr-x 0:0",
		"+ nft 1: table ip nat rule",
		"- /etc/passwd -rw-r--r-- 0:0",
		"- nft 1: table inet own rule",
	})
	assert.Equal(t, len(compare(before, before)), 0)
}

func TestWalk(t *testing.T) {
	dir := t.TempDir()
	assert.NilError(t, os.Mkdir(filepath.Join(dir, "d"), 0o700))
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "d", "f"), nil, 0o640))
	c := census{}
	assert.NilError(t, c.walk(dir))
	assert.NilError(t, c.walk(filepath.Join(dir, "missing")))
	assert.Equal(t, len(c), 3)
	assert.Assert(t, c[filepath.Join(dir, "d", "f")][:10] == "-rw-r-----", c)
}

// TestRules: one rule more or less is one difference, wherever it is, and counters are none.
func TestRules(t *testing.T) {
	before, now := census{}, census{}
	before.rules("nft", "# made by hand\n*nat\nCOMMIT\n:INPUT ACCEPT [7:77]\ntable ip a {\n\taccept\n}\ntable ip b {\n}\n")
	now.rules("nft", ":INPUT ACCEPT [8:88]\ntable ip b {\n}\ntable ip a {\n\taccept\n\taccept\n}\n")
	assert.DeepEqual(t, compare(before, now), []string{"+ nft 2: accept rule"})
}

// TestOthers: what other programs change is passed over, but for what has our name.
func TestOthers(t *testing.T) {
	for path, passed := range map[string]bool{
		"/dev/pts/3": true, "/dev/loop7p1": true, "/dev/null": false, "/dev/nodevirt-1-root": false, "/etc/passwd": false, "/etc/passwd-": true,
		"/run/systemd/transient/a.scope": true, "/run/nodevirt": false, "/etc/alternatives/vi": true, "/dev/loop-control": false,
	} {
		assert.Equal(t, others.MatchString(path), passed, path)
	}
	path := filepath.Join("/dev/shm", "nodevirt-census-test")
	assert.NilError(t, os.WriteFile(path, nil, 0o600))
	t.Cleanup(func() { assert.NilError(t, os.Remove(path)) })
	now := census{}
	assert.NilError(t, now.walk("/dev/shm"))
	_, found := now[path]
	assert.Assert(t, found, "a file of ours among others is not seen")
}
