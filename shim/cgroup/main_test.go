package cgroup

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/test/needs"
)

// roleVar sets the part of the test binary when it runs as a child.
const roleVar = "NODEVIRT_CGROUP_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVar)
	if role == "" {
		os.Exit(m.Run())
	}
	roles := map[string]func() error{"wait": wait, "eat": eat, "hold": hold, "v2": unified}
	if err := roles[role](); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// wait ends with its standard input. Being a Go program it has several threads.
func wait() error {
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	return err
}

// held is what the role hold takes, in bytes.
const held = 8 << 20

// hold waits, takes some memory, says so, and waits again.
func hold() error {
	if err := wait(); err != nil {
		return err
	}
	memory := touched(held)
	fmt.Println("held")
	err := wait()
	runtime.KeepAlive(memory)
	return err
}

// eat waits, then takes far more memory than it is allowed.
func eat() error {
	if err := wait(); err != nil {
		return err
	}
	runtime.KeepAlive(touched(128 << 20))
	return errors.New("took 128 MiB and was not killed")
}

func touched(size int) []byte {
	memory := make([]byte, size)
	for i := 0; i < size; i += 4096 {
		memory[i] = 1
	}
	return memory
}

// again starts the test binary in a role. Ending its standard input ends it; so does the test.
func again(t *testing.T, role string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVar+"="+role)
	return cmd
}

// sleeper starts a process to be placed; it is gone when the test is over.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(cmd) })
	return cmd
}

// end kills and reaps a child; a second call does nothing.
func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// testParent names a parent of this test's own, which goes with all that is left in it. Cleanups
// run last to first: processes started later are gone by then.
func testParent(t *testing.T) string {
	t.Helper()
	needs.Parts(t, "root")
	parent := "/nodevirt-test-" + strings.ToLower(rand.Text()[:8])
	t.Cleanup(func() {
		for _, root := range hierarchies(t) {
			removeTree(t, filepath.Join(root, parent))
		}
	})
	return parent
}

// hierarchies lists the roots of the machine's cgroup trees, those of v1 and that of v2.
func hierarchies(t *testing.T) []string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	var roots []string
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); strings.HasPrefix(f[2], "cgroup") {
			roots = append(roots, f[1])
		}
	}
	return roots
}

func removeTree(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	for _, entry := range entries {
		if entry.IsDir() {
			removeTree(t, filepath.Join(dir, entry.Name()))
		}
	}
	if err := unix.Rmdir(dir); err != nil {
		t.Errorf("clean up %s: %v", dir, err)
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}
