//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// machine is a VM of an instance's spec.
func machine(vmi object) object {
	return object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": vmi["metadata"],
		"spec": object{"runStrategy": "Always", "template": object{"spec": vmi["spec"]}},
	}
}

// The VM and its instance say what keeps the VM from running.
func TestDescribeSaysWhyAVMDoesNotRun(t *testing.T) {
	t.Parallel()
	nothing := strings.Replace(suite.tiny, "tiny:1", "nothing:1", 1)
	for name, c := range map[string]struct {
		change func(spec, domain, devices object)
		says   []string
	}{
		"why-image": {func(spec, _, _ object) {
			spec["volumes"].([]object)[0]["containerDisk"] = object{"image": nothing}
		}, []string{"ErrImagePull", nothing, "not found"}},
		"why-disk": {func(spec, _, _ object) {
			spec["volumes"].([]object)[0]["containerDisk"] = object{"image": suite.busybox}
		}, []string{`container "compute" of image "` + suite.busybox + `"`, "the image has no disk in /disk"}},
		"why-secret": {volume(object{"cloudInitNoCloud": object{"secretRef": object{"name": "nothing"}}}),
			[]string{"FailedMount", `secret "nothing" not found`}},
		"why-memory": {func(_, domain, _ object) { domain["memory"] = object{"guest": "900Gi"} },
			[]string{"Unschedulable", "Insufficient memory"}},
		"why-place": {func(spec, _, _ object) { spec["nodeSelector"] = object{"disk": "fast"} },
			[]string{"Unschedulable", "didn't match Pod's node affinity/selector"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				if _, err := suite.Kubectl(context.WithoutCancel(t.Context()), "delete", "vm", name, "--ignore-not-found"); err != nil {
					t.Error(err)
				}
			})
			assert.NilError(t, create(t.Context(), machine(strangersVMI(name, c.change))))
			for _, kind := range []string{"vm", "vmi"} {
				wait.Success(t, "what kubectl describe "+kind+" says", func(ctx context.Context) error {
					text, err := suite.Kubectl(ctx, "describe", kind, name)
					for _, words := range c.says {
						if err == nil && !strings.Contains(text, words) {
							err = fmt.Errorf("no %q in\n%s", words, text)
						}
					}
					return err
				})
			}
		})
	}
}

// The columns are KubeVirt's.
func TestColumns(t *testing.T) {
	t.Parallel()
	const name = "columns"
	t.Cleanup(func() {
		if _, err := suite.Kubectl(context.WithoutCancel(t.Context()), "delete", "vm", name, "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
	assert.NilError(t, create(t.Context(), machine(strangersVMI(name, func(spec, _, _ object) { spec["nodeSelector"] = object{"no": "where"} }))))
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, "jsonpath={.status.printableStatus}=ErrorUnschedulable"))
	for what, want := range map[string]string{
		"vm":                "NAME AGE STATUS READY",
		"vmi":               "NAME AGE PHASE IP NODENAME READY",
		"vmi --output=wide": "NAME AGE PHASE IP NODENAME READY LIVE-MIGRATABLE PAUSED",
	} {
		out := kubectl(t, append([]string{"get"}, append(strings.Fields(what), name)...)...)
		header, row, _ := strings.Cut(out, "\n")
		if got := strings.Join(strings.Fields(header), " "); got != want {
			t.Errorf("kubectl get %s has the columns %s, want %s", what, got, want)
		}
		if !strings.HasPrefix(row, name) {
			t.Errorf("kubectl get %s: %q", what, row)
		}
	}
}
