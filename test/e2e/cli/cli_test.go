package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/node"
)

// user runs the program in a node.
type user struct {
	*testing.T
	n *node.Node
	// program is the path of nodevirt in the node.
	program string
}

// result is what a command left.
type result struct {
	out, err string
	code     int
}

func newUser(t *testing.T) user {
	t.Helper()
	n := node.ForTest(t, node.Options{Subnet: netip.MustParsePrefix("10.97.0.0/16")})
	return user{t, n, filepath.Join(node.Programs, "nodevirt")}
}

// try runs nodevirt, whatever its exit code is.
func (u user) try(args ...string) result { return u.tryWith(nil, args...) }

// tryWith is try with additions to the environment.
func (u user) tryWith(env []string, args ...string) result {
	u.Helper()
	ctx, cancel := context.WithTimeout(u.Context(), 5*time.Minute)
	defer cancel()
	cmd := u.n.Command(ctx, u.program, args...)
	cmd.Env = append(cmd.Env, env...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	r := result{out: out.String(), err: stderr.String()}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		r.code, err = exit.ExitCode(), nil
	}
	if err != nil {
		u.Fatalf("nodevirt %s: %v", strings.Join(args, " "), err)
	}
	return r
}

// do runs nodevirt, which must not fail, and returns what it wrote.
func (u user) do(args ...string) string {
	u.Helper()
	r := u.try(args...)
	if r.code != 0 {
		u.Fatalf("nodevirt %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

// run are the arguments of a run whose pod is the node's.
func (u user) run(args ...string) []string {
	return append([]string{"run", "--memory", "128Mi", "--log-directory", filepath.Join(u.n.Dir(), "podlogs"),
		"--cgroup-parent", u.n.CgroupParent()}, args...)
}

// decode reads JSON that nodevirt wrote.
func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// disk is a disk that says its line and waits, or powers off.
func disk(t *testing.T, line string, then guest.Then) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.raw")
	assert.NilError(t, os.WriteFile(path, guest.BootSector(line, then), 0o644))
	return path
}
