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

// The controller and the VM's node name a VM as KubeVirt does: by its instance, whatever its pod's name is.
func TestMetricsNameTheInstance(t *testing.T) {
	t.Parallel()
	name := made(t, machineOf("measured"))
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, "condition=Ready"))
	pod := kubectl(t, "get", "pods", "--selector="+byName+"="+name, "-o", "jsonpath={.items[0].metadata.name}")
	// The policy lets namespaces with the label ask.
	kubectl(t, "label", "namespace", "default", "nodevirt.io/metrics=true")
	undo(t, func(ctx context.Context) error {
		_, err := suite.Kubectl(ctx, "label", "namespace", "default", "nodevirt.io/metrics-")
		return err
	})
	node := field(t, pod, ".spec.nodeName")
	wait.Success(t, "the controller's metrics", func(ctx context.Context) error {
		// A controller that does not lead has none of these.
		addresses, err := suite.Kubectl(ctx, "--namespace=nodevirt", "get", "pods", "--selector=app.kubernetes.io/component=controller",
			"-o", "jsonpath={.items[*].status.podIP}")
		if err != nil {
			return err
		}
		var all strings.Builder
		for address := range strings.FieldsSeq(addresses) {
			page, err := askFrom(ctx, shell, address+":8080", "/metrics")
			if err != nil {
				return err
			}
			all.WriteString(page)
		}
		return has(all.String(),
			fmt.Sprintf(`kubevirt_vm_info{flavor="",instance_type="",machine_type="q35",name=%q,namespace="default"`, name),
			fmt.Sprintf(`kubevirt_vmi_non_evictable{name=%q,namespace="default",node=%q} 0`, name, node),
			fmt.Sprintf(`,vmi_pod=%q,`, pod),
		)
	})
	wait.Success(t, "the node's metrics", func(ctx context.Context) error {
		page, err := nodeOf(t, pod).Scrape(ctx)
		if err != nil {
			return err
		}
		return has(page, fmt.Sprintf(`kubevirt_vmi_memory_domain_bytes{name=%q,namespace="default",node=`, name))
	})
	if machine := vmiField(t, name, ".status.machine.type"); !strings.HasPrefix(machine, "pc-q35-") {
		t.Errorf("the VMI has the machine type %q", machine)
	}
}

func has(page string, all ...string) error {
	for _, one := range all {
		if !strings.Contains(page, one) {
			var like []string
			for line := range strings.Lines(page) {
				if name, _, _ := strings.Cut(one, "{"); strings.HasPrefix(line, name) {
					like = append(like, line)
				}
			}
			return fmt.Errorf("no %s among %q", one, like)
		}
	}
	return nil
}
