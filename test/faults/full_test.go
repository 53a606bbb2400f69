//go:build faults

package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/node"
)

// TestShimStartsOnAFullDisk: it finds its guests, reports, ends and removes them, and starts new
// ones when there is room.
func TestShimStartsOnAFullDisk(t *testing.T) {
	for _, what := range []string{"space", "inodes"} {
		t.Run(what, func(t *testing.T) {
			ended := begin(t)
			ended.does(t, life[:started]...)
			created, unmade := ended.beside(t, "created"), ended.beside(t, "unmade")
			created.does(t, life[:started-1]...)
			intended := ended.beside(t, "intended")
			intended.does(t, life[0])
			assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
			intend(t, intended.id)
			assert.NilError(t, fill(what, 0))
			t.Cleanup(func() { assert.NilError(t, empty()) })
			if !killAll(ended.domain()) {
				t.Fatal("QEMU did not run")
			}
			assert.NilError(t, resume(t.Context(), node.Shim))

			assert.NilError(t, answers(t.Context()))
			assert.NilError(t, lists(t.Context()))
			assert.NilError(t, converge(t.Context(), ended.isTrue)) // the end can't be recorded, but is reported
			for what, err := range map[string]error{
				"RunPodSandbox":  life[0].do(t.Context(), unmade.pod),
				"StartContainer": life[started-1].do(t.Context(), created.pod),
			} {
				if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "no space left on device") {
					t.Errorf("%s on a full disk: %v", what, err)
				}
			}
			if what == "space" { // a record's temporary file of no bytes needs an inode alone
				assert.NilError(t, ended.removeOnce(t.Context()))
			}
			assert.NilError(t, empty())
			created.does(t, life[started-1:]...)
			unmade.does(t, life[:started]...)
			assert.NilError(t, converge(t.Context(), func(ctx context.Context) error {
				s, err := suite.cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: intended.id})
				if handler := s.GetStatus().GetRuntimeHandler(); err == nil && handler != "vm" {
					err = fmt.Errorf("the pod's handler is %q", handler)
				}
				return err
			}))
			intended.does(t, life[1:started]...)
		})
	}
}

// intend makes the record of a sandbox into that of one which was being made.
func intend(t *testing.T, id string) {
	t.Helper()
	path := shimRoot("sandboxes", id+".json")
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	text = bytes.Replace(text, []byte(`"id": "`+id+`"`), []byte(`"id": ""`), 1)
	assert.NilError(t, os.WriteFile(strings.TrimSuffix(path, ".json")+".intent", text, 0o600))
	assert.NilError(t, os.Remove(path))
}

// TestGuestWritesToAFullDisk: QEMU stops the guest at the write that fails, and it goes on by itself.
func TestGuestWritesToAFullDisk(t *testing.T) {
	r := begin(t)
	g := suite.steady[0]
	assert.NilError(t, fill("space", 0))
	t.Cleanup(func() { assert.NilError(t, empty()) })
	written := make(chan error, 1)
	go func() {
		text := strings.Repeat("something to keep\n", 1<<14)
		_, err := suite.Fetch(context.WithoutCancel(t.Context()), http.MethodPost, "http://"+g.ip+"/cgi-bin/disk", text)
		written <- err
	}()
	name := "default_" + g.name + "_" + g.container[:12]
	stopped := func(ctx context.Context) error {
		out, err := suite.Output(ctx, "virsh", "--connect", "qemu:///system", "domstate", "--reason", name)
		if err == nil && !strings.Contains(out, "paused (I/O error)") {
			err = errors.New("the guest is " + out)
		}
		return err
	}
	assert.NilError(t, converge(t.Context(), stopped))
	assert.NilError(t, answers(t.Context())) // the status is as before: a stopped guest has not ended
	assert.NilError(t, empty())
	if err := <-written; err != nil {
		t.Errorf("the guest's write: %v", err)
	}
	assert.NilError(t, converge(t.Context(), g.lives))
	assert.NilError(t, r.look(t.Context()))
}
