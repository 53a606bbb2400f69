//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestSidecarOfANetworkBindingPlugin: the KubeVirt object registers a network binding plug-in with a sidecar. The pod of
// an instance with the plug-in has the sidecar, and its guest the SMBIOS fields that the sidecar put into the domain.
func TestSidecarOfANetworkBindingPlugin(t *testing.T) {
	const name, program = "plugged", "smbios-hook-sidecar"
	bin, err := node.CheckoutBin()
	assert.NilError(t, err)
	img, err := images.FromProgram(filepath.Join(bin, "image", program), "1001")
	assert.NilError(t, err)
	image, err := suite.Push(t.Context(), program+":1", img)
	assert.NilError(t, err)
	configure := func(ctx context.Context, network, developer string) error {
		_, err := suite.Kubectl(ctx, "patch", "kubevirt", "kubevirt", "--namespace=nodevirt", "--type=merge",
			`--patch={"spec": {"configuration": {"network": `+network+`, "developerConfiguration": `+developer+`}}}`)
		return err
	}
	assert.NilError(t, configure(t.Context(), `{"binding": {"hooked": {"domainAttachmentType": "managedTap", "sidecarImage": "`+image+`"}}}`,
		`{"featureGates": ["Sidecar"]}`))
	undo(t, func(ctx context.Context) error { return configure(ctx, "null", "null") })
	vmi := strangersVMI(name, func(spec, domain, devices object) {
		domain["memory"] = object{"guest": "128Mi"}
		devices["interfaces"] = []object{{"name": "default", "binding": object{"name": "hooked"}}}
		spec["volumes"] = []object{{"name": "boot", "containerDisk": object{"image": suite.agent}}}
	})
	wait.Success(t, "the plug-in is registered", func(context.Context) error {
		if out, err := sent(t, vmi, "apply", "--dry-run=server", "-f", "-"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	made(t, vmi)
	assert.Equal(t, inGuest(t, name, "cat /sys/class/dmi/id/board_vendor /sys/class/dmi/id/board_name"), "Plug-in\n"+name)
	pod := kubectl(t, "get", "pods", "--selector="+byName+"="+name, "-o", "jsonpath={.items[0].metadata.name}")
	assert.Equal(t, kubectl(t, "get", "pod", pod, "-o", "jsonpath={.spec.initContainers[*].image}"), image)
	assert.Equal(t, kubectl(t, "logs", pod, "--container=hook-sidecar-0"), "OnDefineDomain method has been called")
}
