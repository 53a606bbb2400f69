//go:build machine

package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// schedulable waits until the node has the label of one that starts VMs, or has lost it.
func schedulable(t *testing.T, want string) {
	t.Helper()
	until(t, fmt.Sprintf("the label of a node that starts VMs to be %q", want), func(ctx context.Context) error {
		label, err := suite.Kubectl(ctx, "get", "node", name, "-o", `jsonpath={.metadata.labels.kubevirt\.io/schedulable}`)
		if err == nil && label != want {
			err = fmt.Errorf("it is %q", label)
		}
		return err
	})
}

// otherContainerd: a node whose kubelet uses another containerd than the shim would is not changed.
func otherContainerd(t *testing.T) {
	const other = "/run/other/containerd.sock"
	must(t, "cp -p "+kubeletConfig+" /root/config.yaml; sed -i s,/run/containerd/containerd.sock,"+other+", "+kubeletConfig)
	must(t, snapshot+"snapshot >/root/untouched")
	out, err := run(t.Context(), "nodevirt node install --timeout 20m")
	if err == nil || !strings.Contains(err.Error(), "the kubelet uses the CRI socket "+other) {
		t.Errorf("install beside a kubelet with another containerd: %s, %v", out, err)
	}
	if out := must(t, snapshot+"rm -f /run/nodevirt-node.lock; snapshot | diff /root/untouched - || true"); out != "" {
		t.Errorf("what the refused installation changed:\n%s", out)
	}
	must(t, "mv /root/config.yaml "+kubeletConfig)
}

// restartGuests restarts libvirt-guests, which shuts guests down, as docs/node.md warns. The kubelet starts them again.
func restartGuests(t *testing.T) {
	old, log := must(t, container("small")), logOf(t, "small")
	must(t, "systemctl restart libvirt-guests")
	until(t, "another container", func(ctx context.Context) error {
		now, err := run(ctx, container("small"))
		if now = strings.TrimSpace(now); err == nil && (now == "" || now == old) {
			err = fmt.Errorf("the container is %q", now)
		}
		return err
	})
	guestsUp(t, "small")
	closed(t, "small", log)
	if reason := ended(t, "small"); reason != "Completed 0" {
		t.Errorf("the guest's end is %q", reason)
	}
}

// rewriteArguments writes the kubelet's arguments as they were before the installation, as configuration management may.
// The node takes no VMs until the kubelet calls the shim again.
func rewriteArguments(t *testing.T) {
	must(t, "cp -p /etc/default/kubelet /root/arguments; cp /opt/payload/root/etc/default/kubelet /etc/default/kubelet; systemctl restart kubelet")
	wantFindings(t, "accelerator", "kubelet")
	schedulable(t, "")
	must(t, "mv /root/arguments /etc/default/kubelet; systemctl restart kubelet")
	wantFindings(t, "accelerator")
	nodeReady(t)
	schedulable(t, "true")
	guestsUp(t, "small")
	if out := must(t, qemu+" | wc -l"); out != "1" {
		t.Errorf("the pod has %s QEMUs", out)
	}
}

// keepObjects: while nodevirt's policies are in the cluster, its CRDs can't be deleted, and with them all VMs.
func keepObjects(t *testing.T) {
	deploy, err := filepath.Abs("../../../deploy")
	if err != nil {
		t.Fatal(err)
	}
	crds := filepath.Join(deploy, "crds")
	kubectl := func(args ...string) {
		t.Helper()
		if _, err := suite.Kubectl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	policies, err := os.ReadFile(filepath.Join(deploy, "kubernetes/policies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	kubectl("apply", "--server-side", "-f", crds)
	kubectl("wait", "--for=condition=Established", "-f", crds)
	kubectl("create", "namespace", "nodevirt")
	if err := suite.Apply(t.Context(), string(policies)); err != nil {
		t.Fatal(err)
	}
	const vm = `{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "kept"}, "spec": {"runStrategy": "Halted",
		"template": {"spec": {"domain": {"devices": {}}}}}}`
	if err := suite.Apply(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	until(t, "the CRDs to be kept", func(ctx context.Context) error {
		// A policy takes a moment to be in force; a dry run deletes nothing until it is.
		_, err := suite.Kubectl(ctx, "delete", "--dry-run=server", "-f", crds)
		if err == nil || !strings.Contains(err.Error(), "deletes every VM") {
			return errors.Join(errors.New("the deletion of CRDs is not refused by the policy"), err)
		}
		return nil
	})
	if out, err := suite.Kubectl(t.Context(), "delete", "--wait=false", "-f", crds); err == nil || strings.Contains(out, "deleted") {
		t.Errorf("delete the CRDs: %s, %v", out, err)
	}
	kubectl("get", "virtualmachine", "kept")
}
