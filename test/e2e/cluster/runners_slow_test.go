//go:build cluster && slow

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestTheExampleOfRunners: the VMs of a pool go on from a guest that the kubelet has saved. Each has its own host
// name and machine ID, and did not boot.
func TestTheExampleOfRunners(t *testing.T) {
	t.Parallel()
	_, err := clustertest.PushDisk(t.Context(), suite.Cluster, "runner:1", guest.TinyWithAgent)
	assert.NilError(t, err)
	apply(t, "runner.yaml")
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/runner", "condition=AgentConnected"))
	podOf := func(vmi string) string {
		return kubectl(t, "get", "pods", "--selector=vm.kubevirt.io/name="+vmi, "-o", "jsonpath={.items[0].metadata.name}")
	}
	template := podOf("runner")
	saved := identityIn(t, template, "compute")
	assert.NilError(t, pushBooted(t, template, "compute", "runner:booted"))

	apply(t, "runners.yaml")
	seen := map[string]bool{saved.machine: true}
	for _, name := range []string{"runners-0", "runners-1"} {
		assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, "condition=Ready"))
		pod := podOf(name)
		renewed(t, pod)
		id := identityIn(t, pod, "compute")
		if id.boot != saved.boot || id.host != name || seen[id.machine] {
			t.Errorf("%s is %+v; saved was %+v", name, id, saved)
		}
		seen[id.machine] = true
	}
}

// identity is what a guest that goes on from another one has of it, its boot, and what it has not.
type identity struct{ boot, machine, host string }

// identityIn asks the agent of the guest of a pod.
func identityIn(t *testing.T, pod, container string) identity {
	t.Helper()
	lines := strings.Fields(kubectl(t, "exec", pod, "-c", container, "--", "sh", "-c", "cat /proc/sys/kernel/random/boot_id /etc/machine-id; hostname"))
	assert.Equal(t, len(lines), 3, "%q", lines)
	return identity{lines[0], lines[1], lines[2]}
}

// renewed waits until a pod says that its guest has a new identity.
func renewed(t *testing.T, pod string) {
	t.Helper()
	wait.Success(t, "the identity of "+pod, func(ctx context.Context) error {
		reason, err := suite.Kubectl(ctx, "get", "pod", pod, "-o", `jsonpath={.status.conditions[?(@.type=="nodevirt.io/IdentityRenewed")].reason}`)
		if err == nil && reason != "Renewed" {
			err = fmt.Errorf("reason %q", reason)
		}
		return err
	})
}

// pushBooted saves the guest of a pod by the kubelet's API, and pushes the image that an example names: the disk of
// guest.TinyWithAgent with the archive.
func pushBooted(t *testing.T, pod, container, image string) error {
	t.Helper()
	node := field(t, pod, ".spec.nodeName")
	answer := kubectl(t, "create", "--raw", "/api/v1/nodes/"+node+"/proxy/checkpoint/default/"+pod+"/"+container, "-f", os.DevNull)
	var made struct{ Items []string }
	if err := json.Unmarshal([]byte(answer), &made); err != nil || len(made.Items) != 1 {
		return fmt.Errorf("save %s: %s: %w", pod, answer, err)
	}
	archive := filepath.Join(suite.Node(node).Dir(), "kubelet", strings.TrimPrefix(made.Items[0], "/var/lib/kubelet"))
	t.Cleanup(func() { assert.NilError(t, os.Remove(archive)) })
	files, err := images.Extract(archive, t.TempDir())
	if err != nil {
		return err
	}
	disk, err := guest.TinyWithAgent(t.Context(), suite.Control().GuestOptions())
	if err != nil {
		return err
	}
	img, err := images.RegistryDisk(disk, images.DiskOptions{Above: [][]images.File{files}})
	if err != nil {
		return err
	}
	_, err = suite.Push(t.Context(), image, img)
	return err
}
