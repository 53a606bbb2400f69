package vmspec_test

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// pluginVMI has a card of each kind of plug-in, and one of nodevirt's own.
const pluginVMI = `{"domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "usb"}}], "interfaces": [
	{"name": "default", "binding": {"name": "l2"}}, {"name": "lan", "binding": {"name": "macvtap"}, "macAddress": "02-00-00-00-00-01"},
	{"name": "own", "bridge": {}}]}},
	"networks": [{"name": "default", "pod": {}}, {"name": "lan", "multus": {"networkName": "lan"}}, {"name": "own", "multus": {"networkName": "own"}}],
	"volumes": [{"name": "root", "containerDisk": {"image": "r"}}]}`

func TestPlugins(t *testing.T) {
	annotations := with(vmi(pluginVMI), vmspec.AnnotationNetworkBindings,
		`{"l2": {"domainAttachmentType": "managedTap", "migration": {}}, "macvtap": {"domainAttachmentType": "tap"}}`)
	sandbox := &runtimeapi.PodSandboxConfig{Annotations: annotations}
	if err := vmspec.ValidateSandbox(sandbox); err != nil {
		t.Fatal(err)
	}
	if !vmspec.TakesPodAddress(annotations) || !vmspec.AddressMoves(annotations) {
		t.Error("the plug-in of the pod network's card does not count")
	}
	annotations[vmspec.AnnotationNetworkBindings] = strings.Replace(annotations[vmspec.AnnotationNetworkBindings], "migration", "other", 1)
	if vmspec.AddressMoves(annotations) {
		t.Error("the pod's address moves without a migration in the registration")
	}
}

// TestPluginErrors: a pod has its plug-ins' registrations, in an annotation that only the controller writes.
func TestPluginErrors(t *testing.T) {
	for given, want := range map[string]string{
		``: `network card "default": annotation nodevirt.io/network-bindings has no network binding plug-in "l2"; it has: `,
		`{"macvtap": {"domainAttachmentType": "tap"}}`:                 `has no network binding plug-in "l2"; it has: macvtap`,
		`{"l2": {"domainAttachmentType": "bridge"}}`:                   `plug-in "l2": domainAttachmentType "bridge" is neither tap nor managedTap`,
		`{"l2": {"domainAttachmentType": "tap", "sidecarImage": "x"}}`: `not a JSON object of plug-ins`,
		`{"l2": {"domainAttachmentType": "tap"}} {}`:                   `text follows the JSON object`,
	} {
		annotations := vmi(pluginVMI)
		if given != "" {
			annotations = with(annotations, vmspec.AnnotationNetworkBindings, given)
		}
		err := vmspec.ValidateSandbox(&runtimeapi.PodSandboxConfig{Annotations: annotations})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", given, err, want)
		}
	}
}

// TestPluginInterface: the names are KubeVirt's, which its plug-ins expect.
func TestPluginInterface(t *testing.T) {
	for network, want := range map[string]string{"network1": "poda7662f44d65", "network2": "pod27f4a77f94e"} {
		if got := vmspec.PluginInterface(network); got != want {
			t.Errorf("the interface of %s is %s, want %s", network, got, want)
		}
	}
}
