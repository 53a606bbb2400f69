//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/wait"
)

// A guest that ignores the power button has a grace period of ten minutes. A user who does not wait for it has it powered off
// in seconds, also after a slow stop has begun.
func TestForceEndsADeafGuest(t *testing.T) {
	t.Parallel()
	const soon = 30 * time.Second // the machine may be busy
	ref, err := clustertest.PushDisk(t.Context(), suite.Cluster, "deaf:1", func(context.Context, guest.Options) (string, error) {
		name := filepath.Join(t.TempDir(), "disk.raw")
		return name, os.WriteFile(name, guest.BootSector("deaf", guest.Halt), 0o600)
	})
	assert.NilError(t, err)
	v := &virtctl{t: t, seen: map[string]bool{}}
	for name, c := range map[string]struct {
		slow, force func(vm string)
	}{
		"stop": {
			slow:  func(vm string) { v.works("stop "+vm, "was scheduled") },
			force: func(vm string) { v.works("stop --force --grace-period=0 "+vm, "was scheduled") },
		},
		"stop-at-once": {
			slow:  func(string) {},
			force: func(vm string) { v.works("stop --force --grace-period=0 "+vm, "was scheduled") },
		},
		"pod": {
			slow: func(vm string) { kubectl(t, "delete", "pod", "--wait=false", "--selector="+byName+"="+vm) },
			force: func(vm string) {
				kubectl(t, "delete", "pod", "--wait=false", "--grace-period=1", "--selector="+byName+"="+vm)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			vm := made(t, machine(strangersVMI("deaf-"+name, func(spec, domain, _ object) {
				spec["terminationGracePeriodSeconds"] = 600
				domain["memory"] = object{"guest": "16Mi"}
				spec["volumes"].([]object)[0]["containerDisk"] = object{"image": ref}
			})))
			t.Cleanup(func() { _, _ = v.run("", "stop", "--force", "--grace-period=0", vm) }) // its deletion would wait
			assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+vm, "jsonpath={.status.phase}=Running"))
			pod := vmiPod(t, vm)
			c.slow(vm)
			time.Sleep(5 * time.Second) // the kubelet's stop runs
			if now := vmiPod(t, vm); now != pod {
				t.Fatalf("the guest was not deaf: pod %s, and %s before", now, pod)
			}
			begun := time.Now()
			c.force(vm)
			wait.Success(t, "the end of the pod of "+vm, func(ctx context.Context) error {
				out, err := suite.Kubectl(ctx, "get", "pods", "-l", byName+"="+vm, "-o", "jsonpath={.items[*].metadata.uid}")
				if err == nil && strings.Contains(out, pod) {
					err = fmt.Errorf("pod %s is there", out)
				}
				return err
			})
			if took := time.Since(begun); took > soon {
				t.Errorf("it took %s", took)
			}
		})
	}
}
