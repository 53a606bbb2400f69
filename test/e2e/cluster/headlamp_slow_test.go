//go:build cluster && slow

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	kubevirt "kubevirt.io/api/core/v1"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodevirt/nodevirt/test/wait"
)

// The content types of Headlamp's requests.
const (
	plainJSON  = "application/json"
	mergePatch = "application/merge-patch+json"
)

// headlamp sends requests of Headlamp's KubeVirt plug-in to the API server.
type headlamp struct {
	client *http.Client
	host   string
}

func newHeadlamp(t *testing.T) headlamp {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", suite.Kubeconfig())
	assert.NilError(t, err)
	client, err := rest.HTTPClientFor(config)
	assert.NilError(t, err)
	return headlamp{client, config.Host}
}

// try sends a request, and decodes the answer into into, if that is not nil.
func (h headlamp) try(ctx context.Context, method, path, content string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, h.host+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", content)
	resp, err := h.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

func (h headlamp) get(t *testing.T, path string, into any) {
	t.Helper()
	assert.NilError(t, h.try(t.Context(), http.MethodGet, path, plainJSON, nil, into))
}

// TestHeadlamp does to a VM what Headlamp's KubeVirt plug-in does for its pages and buttons.
func TestHeadlamp(t *testing.T) {
	t.Parallel()
	const (
		name         = "headlamp"
		vms          = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
		instances    = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
		subresources = "/apis/subresources.kubevirt.io/v1/namespaces/default/"
	)
	h := newHeadlamp(t)

	// Its menus follow the version and the feature gates. With two versions it would show an upgrade.
	var installed kubevirt.KubeVirtList
	h.get(t, "/apis/kubevirt.io/v1/kubevirts", &installed)
	if len(installed.Items) != 1 || !strings.HasPrefix(installed.Items[0].Status.ObservedKubeVirtVersion, "v1.") ||
		installed.Items[0].Status.TargetKubeVirtVersion != installed.Items[0].Status.ObservedKubeVirtVersion {
		t.Errorf("installed: %+v", installed.Items)
	}
	for _, group := range []string{"pool.kubevirt.io", "backup.kubevirt.io"} {
		h.get(t, "/apis/"+group, nil)
	}

	// What its form creates.
	undo(t, func(ctx context.Context) error {
		_, err := suite.Kubectl(ctx, "delete", "vm", name, "--ignore-not-found")
		return err
	})
	assert.NilError(t, h.try(t.Context(), http.MethodPost, vms, plainJSON, object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": name, "namespace": "default"},
		"spec": object{"runStrategy": "Manual", "template": object{"metadata": object{}, "spec": object{
			"domain": object{
				"devices": object{
					"autoattachGraphicsDevice": true,
					"disks": []object{
						{"name": "boot", "disk": object{"bus": "virtio"}, "bootOrder": 1},
						{"name": "cloudinitdisk", "disk": object{"bus": "virtio"}},
					},
					"interfaces": []object{{"name": "default", "masquerade": object{}}},
				},
				"resources": object{"requests": object{"memory": "128Mi"}},
				"cpu":       object{"cores": 1},
			},
			"networks": []object{{"name": "default", "pod": object{}}},
			"volumes": []object{
				{"name": "boot", "containerDisk": object{"image": suite.agent}},
				{"name": "cloudinitdisk", "cloudInitNoCloud": object{"userData": "#cloud-config\n"}},
			},
		}}},
	}, nil))

	// vm waits for what the list's buttons depend on.
	vm := func(what string, ok func(kubevirt.VirtualMachine) bool) {
		t.Helper()
		wait.Success(t, "a VM that is "+what, func(ctx context.Context) error {
			var list kubevirt.VirtualMachineList
			err := h.try(ctx, http.MethodGet, vms, plainJSON, nil, &list)
			for _, o := range list.Items {
				if o.Name == name && ok(o) {
					return err
				}
			}
			return fmt.Errorf("not in %d VMs: %w", len(list.Items), err)
		})
	}
	status := func(want kubevirt.VirtualMachinePrintableStatus) {
		t.Helper()
		vm(string(want), func(o kubevirt.VirtualMachine) bool { return o.Status.PrintableStatus == want })
	}
	put := func(resource, action string, body object) {
		t.Helper()
		assert.NilError(t, h.try(t.Context(), http.MethodPut, subresources+resource+"/"+name+"/"+action, plainJSON, body, nil))
	}
	status(kubevirt.VirtualMachineStatusStopped)
	put("virtualmachines", "start", object{})
	status(kubevirt.VirtualMachineStatusRunning)

	// The details, and the tab of what the guest says.
	var vmi kubevirt.VirtualMachineInstance
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "condition=AgentConnected"))
	h.get(t, instances+"/"+name, &vmi)
	if s := vmi.Status; len(s.Interfaces) == 0 || len(s.VolumeStatus) == 0 || s.NodeName == "" || s.Memory == nil || s.CurrentCPUTopology == nil {
		t.Errorf("the page shows more than the instance's status: %+v", s)
	}
	var system kubevirt.VirtualMachineInstanceGuestAgentInfo
	h.get(t, subresources+"virtualmachineinstances/"+name+"/guestosinfo", &system)
	if system.Hostname != name || system.OS.KernelRelease == "" || len(system.SupportedCommands) == 0 {
		t.Errorf("guestosinfo: %+v", system)
	}
	for _, report := range []string{"filesystemlist", "userlist"} {
		h.get(t, subresources+"virtualmachineinstances/"+name+"/"+report, &object{})
	}
	var pods struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	h.get(t, "/api/v1/namespaces/default/pods?labelSelector=vm.kubevirt.io/name%3D"+name, &pods)
	if len(pods.Items) != 1 || !strings.HasPrefix(pods.Items[0].Metadata.Name, "virt-launcher-") {
		t.Errorf("pods: %+v", pods)
	}

	// Its sockets offer the protocol of Kubernetes' streams first.
	console := connect(t, name+"/console", "base64.binary.k8s.io")
	console.send("echo headlamp-$((1 + 40))\n")
	console.sees("headlamp-41")
	connect(t, name+"/vnc", "base64.binary.k8s.io").sees("RFB 003.")

	put("virtualmachineinstances", "pause", object{})
	status(kubevirt.VirtualMachineStatusPaused)
	put("virtualmachineinstances", "unpause", object{})
	status(kubevirt.VirtualMachineStatusRunning)
	put("virtualmachines", "restart", object{})
	wait.Success(t, "another instance", func(ctx context.Context) error {
		var now kubevirt.VirtualMachineInstance
		err := h.try(ctx, http.MethodGet, instances+"/"+name, plainJSON, nil, &now)
		if err == nil && (now.UID == vmi.UID || now.Status.Phase != kubevirt.Running) {
			err = fmt.Errorf("UID %s, phase %s", now.UID, now.Status.Phase)
		}
		return err
	})

	const protection = "kubevirt.io/vm-delete-protection"
	for _, value := range []any{"True", nil} {
		patch := object{"metadata": object{"labels": object{protection: value}}}
		assert.NilError(t, h.try(t.Context(), http.MethodPatch, vms+"/"+name, mergePatch, patch, nil))
		vm(fmt.Sprintf("protected: %v", value), func(o kubevirt.VirtualMachine) bool {
			_, protected := o.Labels[protection]
			return protected == (value != nil)
		})
	}
	put("virtualmachines", "stop", object{"gracePeriod": 0})
	status(kubevirt.VirtualMachineStatusStopped)
	assert.NilError(t, h.try(t.Context(), http.MethodDelete, vms+"/"+name, plainJSON, nil, nil))
}
