//go:build cluster && slow

package cluster

import (
	"testing"
)

// A guest behind masquerade, and a proxy beside it in its pod: a Service has a port of either, and so
// the guest's page by two ways.
func TestAGuestAndItsProxyBehindAService(t *testing.T) {
	t.Parallel()
	const name = "proxied"
	pod := vmPod(name, suite.tiny)
	about := pod["metadata"].(object)
	about["labels"] = object{"app": name}
	about["annotations"] = object{
		"nodevirt.io/vm-container": "c",
		"nodevirt.io/vmi": `{
			"domain": {"devices": {
				"disks": [{"name": "root", "disk": {"bus": "virtio"}}],
				"interfaces": [{"name": "default", "masquerade": {}, "ports": [{"name": "http", "port": 80}]}]
			}},
			"networks": [{"name": "default", "pod": {}}],
			"volumes": [{"name": "root", "containerDisk": {"image": ""}}]
		}`,
	}
	spec := pod["spec"].(object)
	spec["terminationGracePeriodSeconds"] = 10 // which the proxy takes whole
	spec["containers"] = append(spec["containers"].([]object), object{
		"name": "proxy", "image": suite.busybox, "command": []string{"nc", "-ll", "-p", "8080", "-e", "nc", "10.0.2.2", "80"},
	})
	serve(t, name, object{"selector": object{"app": name}, "ports": []object{
		{"name": "guest", "port": 80}, {"name": "proxy", "port": 8080},
	}})
	ready(t, pod)
	direct := answer(t, name)
	if proxied := answer(t, name+":8080"); proxied != direct || direct.Hostname != name {
		t.Errorf("through the proxy: %+v, directly: %+v", proxied, direct)
	}
}
