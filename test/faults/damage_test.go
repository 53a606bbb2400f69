//go:build faults

package faults

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/node"
)

// TestSecondShim: a shim that shares anything with the node's does not start, and changes nothing.
func TestSecondShim(t *testing.T) {
	r := begin(t)
	r.does(t, life[:started]...)
	config, err := os.ReadFile(filepath.Join(suite.Dir(), "etc", "nodevirt-shim.toml"))
	assert.NilError(t, err)
	other, err := os.MkdirTemp(suite.Dir(), "second")
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, os.RemoveAll(other)) })
	t.Cleanup(func() {
		_, err := suite.Output(context.WithoutCancel(t.Context()), "rm", "-rf", "/run/second")
		assert.NilError(t, err)
	})
	const socket, second = "/run/nodevirt/nodevirt.sock", "/run/second/second.sock"
	for field, change := range map[string]*strings.Replacer{
		"root": strings.NewReplacer("run = '/run/nodevirt'", "run = '/run/second'", socket, second),
		"run":  strings.NewReplacer("root = '"+filepath.Join(suite.Dir(), "nodevirt")+"'", "root = '"+other+"/root'", socket, second),
	} {
		text := change.Replace(string(config))
		assert.Assert(t, text != string(config))
		file := filepath.Join(other, field+".toml")
		assert.NilError(t, os.WriteFile(file, []byte(text), 0o600))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := suite.Output(ctx, filepath.Join(node.Programs, "nodevirt-shim"), "-config", file)
		assert.NilError(t, ctx.Err(), "it serves")
		cancel()
		assert.ErrorContains(t, err, "another shim (process ")
		assert.ErrorContains(t, err, "set another "+field)
	}
	assert.NilError(t, answers(t.Context()))
	assert.NilError(t, converge(t.Context(), r.isTrue))
	for _, g := range suite.steady {
		assert.NilError(t, g.lives(t.Context()))
	}
}

// TestFullLog: the log's file system is full of the VM's own output. Its pod can be removed, which makes room.
func TestFullLog(t *testing.T) {
	r := begin(t)
	logs := r.config.GetLogDirectory()
	_, err := suite.Output(t.Context(), "mkdir", "-p", logs)
	assert.NilError(t, err)
	_, err = suite.Output(t.Context(), "mount", "-t", "tmpfs", "-o", "size=64k", "nodevirt", logs)
	assert.NilError(t, err)
	t.Cleanup(func() {
		_, err := suite.Output(context.WithoutCancel(t.Context()), "umount", "-l", logs)
		assert.NilError(t, err)
	})
	r.does(t, life[:started]...)
	// As another container's output may fill the file system, and then more than it has room for.
	_, err = suite.Output(t.Context(), "dd", "if=/dev/zero", "of="+filepath.Join(logs, "other.log"), "bs=4k", "count=17")
	assert.ErrorContains(t, err, "No space left on device")
	console, err := os.OpenFile(shimRoot("containers", r.container, "console"), os.O_WRONLY|os.O_APPEND, 0)
	assert.NilError(t, err)
	_, err = console.WriteString(strings.Repeat("a line of the console\r\n", 1<<14))
	assert.NilError(t, err)
	assert.NilError(t, console.Close())
	assert.NilError(t, r.removeOnce(t.Context()))
}

// TestReadOnlyRoot: a shim whose folder can't be written starts again, with the VMs that run and the node's
// ordinary containers.
func TestReadOnlyRoot(t *testing.T) {
	r := begin(t)
	r.does(t, life[:started]...)
	refused := r.beside(t, "refused")
	root := filepath.Join(suite.Dir(), "nodevirt")
	run := func(ctx context.Context, name string, args ...string) {
		t.Helper()
		_, err := suite.Output(ctx, name, args...)
		assert.NilError(t, err)
	}
	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	run(t.Context(), "mount", "--bind", root, root) // QEMU has files open in the other mount
	run(t.Context(), "mount", "-o", "remount,bind,ro", root)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		assert.NilError(t, suite.Kill(ctx, node.Shim, syscall.SIGKILL))
		run(ctx, "umount", "-l", root)
		assert.NilError(t, resume(ctx, node.Shim))
	})
	assert.NilError(t, resume(t.Context(), node.Shim))
	assert.NilError(t, answers(t.Context()))
	assert.NilError(t, lists(t.Context()))
	assert.NilError(t, converge(t.Context(), r.isTrue))
	for _, g := range suite.steady {
		assert.NilError(t, g.lives(t.Context()))
	}
	assert.ErrorContains(t, life[0].do(t.Context(), refused.pod), "read-only file system")
	reply, err := suite.cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: refused.config})
	assert.NilError(t, err, "a pod of ordinary containers")
	refused.id = reply.GetPodSandboxId()
}

// TestLostRunFolders: the shim makes them again when it needs them.
func TestLostRunFolders(t *testing.T) {
	r := begin(t)
	for _, name := range []string{"mounts", "convert", "tpms", "emulators"} {
		_, err := suite.Output(t.Context(), "rm", "-r", filepath.Join("/run/nodevirt", name))
		assert.NilError(t, err)
	}
	r.does(t, life[:started]...)
	assert.NilError(t, converge(t.Context(), r.isTrue))
}

// TestPowerButtonWithoutLibvirt: QEMU's monitor takes the order to shut the guest down, as docs/node.md says, when libvirt
// has forgotten the guest.
func TestPowerButtonWithoutLibvirt(t *testing.T) {
	r := begin(t)
	r.does(t, life[:started]...)
	r.loses(t, node.Libvirtd)
	name := "default_" + r.name + "_" + r.container[:12]
	for _, kind := range []string{".xml", ".pid"} {
		assert.NilError(t, os.Remove(outside(filepath.Join("/run/libvirt/qemu", name+kind))))
	}
	assert.NilError(t, resume(t.Context(), node.Libvirtd))

	folders, err := filepath.Glob(outside("/var/lib/libvirt/qemu/domain-*-" + name[:20]))
	assert.NilError(t, err)
	assert.Equal(t, len(folders), 1)
	folder, err := os.Open(folders[0]) // the path is too long for a socket's address
	assert.NilError(t, err)
	defer folder.Close()
	conn, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/monitor.sock", folder.Fd()))
	assert.NilError(t, err)
	defer conn.Close()
	assert.NilError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(conn, `{"execute":"qmp_capabilities"}`+"\n"+`{"execute":"system_powerdown"}`+"\n")
	assert.NilError(t, err)
	for lines := bufio.NewScanner(conn); ; {
		if !lines.Scan() {
			t.Fatalf("QEMU's monitor ends: %v", lines.Err())
		}
		if strings.Contains(lines.Text(), `"event": "POWERDOWN"`) {
			return
		}
	}
}
