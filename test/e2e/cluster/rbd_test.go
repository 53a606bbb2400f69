//go:build cluster && ceph

package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/ceph"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestTheExampleOfRBD: a VM boots from the image that its PVC is bound to, by the key of a Secret, and keeps
// its data over a restart. A second VM waits, though its PVC is bound to another PersistentVolume of the image.
func TestTheExampleOfRBD(t *testing.T) {
	c := ceph.ForTest(t, suite.Nodes()[0])
	// VMs share librados' configuration, so that the last one leaves it.
	t.Cleanup(func() { assert.NilError(t, os.RemoveAll(filepath.Join(suite.Nodes()[0].Dir(), "run/nodevirt/ceph"))) })
	disk, err := guest.Tiny(t.Context(), suite.Control().GuestOptions())
	assert.NilError(t, err)
	assert.NilError(t, c.Import(t.Context(), "disk", "qcow2", disk))
	text, err := os.ReadFile(filepath.Join(examples(t), "rbd.yaml"))
	assert.NilError(t, err)
	// Ceph is the first node's, and listens there alone.
	first := strings.NewReplacer("192.0.2.20:3300", ceph.Address, "AQBjb3VudC1vbi1tZS10by1iZS1jaGFuZ2VkIQ==", c.Key, "guest: 1Gi", "guest: 128Mi",
		"      domain:\n", "      nodeSelector: {kubernetes.io/hostname: node-1}\n      domain:\n").Replace(string(text))
	second := strings.NewReplacer("name: rbd\n", "name: rbd-2\n", "Name: rbd\n", "Name: rbd-2\n").Replace(first)
	undo(t, func(ctx context.Context) error {
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "describe", "vm,vmi,pvc,pods")
			t.Log(about)
		}
		_, err := suite.Kubectl(ctx, "delete", "--ignore-not-found", "vm/rbd", "vm/rbd-2", "pvc/rbd", "pvc/rbd-2", "pv/rbd", "pv/rbd-2", "secret/ceph-guests")
		return err
	})
	assert.NilError(t, suite.Apply(t.Context(), first))
	ip := addressOf(t, "rbd")
	pod := kubectl(t, "get", "pods", "--selector=vm.kubevirt.io/name=rbd", "-o", "jsonpath={.items[0].metadata.name}")
	xml := virsh(t, "dumpxml", pod)
	for _, want := range []string{"protocol='rbd' name='vms/disk'", "<auth username='guests'>"} {
		if !strings.Contains(xml, want) {
			t.Errorf("no %s in\n%s", want, xml)
		}
	}
	if strings.Contains(xml, c.Key) {
		t.Error("the domain shows the key")
	}
	wait.Success(t, "the guest's file", func(ctx context.Context) error {
		_, err := suite.Kubectl(ctx, "exec", shell, "--", "wget", "-q", "-O", "-", "--post-data=kept", "http://"+ip+"/cgi-bin/disk")
		return err
	})
	assert.NilError(t, suite.Apply(t.Context(), second))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/rbd-2", `jsonpath={.status.conditions[?(@.type=="Synchronized")].reason}=PVCInUse`))
	kubectl(t, "delete", "vm", "rbd")
	asked(t, addressOf(t, "rbd-2"), "/cgi-bin/disk", "kept")
	kubectl(t, "delete", "vm", "rbd-2")
}
