//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// serve makes a Service, and deletes it when the test ends.
func serve(t *testing.T, name string, spec object) {
	t.Helper()
	t.Cleanup(func() {
		if _, err := suite.Kubectl(context.WithoutCancel(t.Context()), "delete", "service", name, "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
	assert.NilError(t, create(t.Context(), object{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": name}, "spec": spec}))
}

// The name of an instance with hostname and subdomain, behind a headless Service, is its guest's address.
func TestAGuestHasItsNameInAHeadlessService(t *testing.T) {
	t.Parallel()
	const name, host, domain = "headless", "db-0", "databases"
	vmi := strangersVMI(name, func(spec, _, _ object) { spec["hostname"], spec["subdomain"] = host, domain })
	vmi["metadata"].(object)["labels"] = object{"app": name}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "describe", "vmi", name)
			t.Log(about)
		}
		if _, err := suite.Kubectl(ctx, "delete", "vmi", name, "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
	serve(t, domain, object{"clusterIP": "None", "selector": object{"app": name}, "ports": []object{{"port": 80}}})
	assert.NilError(t, create(t.Context(), vmi))
	full := fmt.Sprintf("%s.%s.default.svc.cluster.local", host, domain)
	if got := answer(t, full); got.Hostname != host {
		t.Errorf("%s is %+v", full, got)
	}
	refusedDial(t, name+"/vnc", "", 400, "No graphics devices are present")
	ip := kubectl(t, "get", "vmi", name, "-o", "jsonpath={.status.interfaces[0].ipAddress}")
	if got := said(t, shell, "nslookup", full); !strings.Contains(got, ip) {
		t.Errorf("%s, whose address is %s, is resolved to %s", full, ip, got)
	}
}

// A pod that shares its process namespace shows its containers' processes to a sidecar with all rights
// that root has in a container, and none of the VM's: QEMU and dnsmasq are not the pod's to end.
func TestASharedProcessNamespaceHoldsNoVM(t *testing.T) {
	t.Parallel()
	const name = "shared-processes"
	pod := vmPod(name, suite.tiny)
	pod["metadata"].(object)["annotations"] = object{"nodevirt.io/vm-container": "c"}
	spec := pod["spec"].(object)
	spec["shareProcessNamespace"] = true
	spec["terminationGracePeriodSeconds"] = 5
	spec["containers"] = append(spec["containers"].([]object), object{
		"name": "look", "image": suite.busybox, "command": []string{"sleep", "100000"},
	})
	ready(t, pod)
	seen := kubectl(t, "exec", name, "-c", "look", "--", "sh", "-c", "cat /proc/[0-9]*/comm")
	programs := strings.Fields(seen)
	if !slices.Contains(programs, "pause") || !slices.Contains(programs, "sleep") {
		t.Errorf("the namespace is not shared: %q", programs)
	}
	for _, program := range programs {
		if strings.HasPrefix(program, "qemu") || program == "dnsmasq" {
			t.Errorf("a sidecar sees %s", program)
		}
	}
}
