//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// stranger may make pods and VMs in one namespace, and nothing else. It attacks another namespace,
// and the node.
const (
	stranger = "stranger"
	setting  = `apiVersion: v1
kind: Namespace
metadata:
  name: stranger
  labels: {pod-security.kubernetes.io/enforce: restricted}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: stranger, namespace: stranger}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list, create, update, patch]}
- {apiGroups: [kubevirt.io], resources: [virtualmachines, virtualmachineinstances], verbs: [get, list, create, update, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: stranger, namespace: stranger}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: stranger}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: stranger}]
---
apiVersion: v1
kind: Secret
metadata: {name: treasure, namespace: default}
stringData: {userdata: "#!/bin/sh"}
`
)

// asStranger applies an object as the stranger.
func asStranger(t *testing.T, o object) error {
	t.Helper()
	text, err := json.Marshal(o)
	assert.NilError(t, err)
	cmd := suite.KubectlCommand(t.Context(), "--as="+stranger, "--namespace="+stranger, "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(string(text))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// strangersPod is a VM's pod that Pod Security's strictest level takes.
func strangersPod(name string) object {
	p := vmPod(name, suite.tiny)
	c := container(p)
	c["resources"].(object)["limits"].(object)["memory"] = "96Mi"
	c["securityContext"] = object{
		"allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 1000,
		"capabilities": object{"drop": []string{"ALL"}}, "seccompProfile": object{"type": "RuntimeDefault"},
	}
	return p
}

// strangersVMI is a VMI that is all right, but for what change makes of its spec.
func strangersVMI(name string, change func(spec, domain, devices object)) object {
	devices := object{
		"disks":      []object{{"name": "boot", "disk": object{"bus": "virtio"}}},
		"interfaces": []object{{"name": "default", "masquerade": object{}}},
	}
	domain := object{"memory": object{"guest": "96Mi"}, "devices": devices}
	spec := object{
		"domain":   domain,
		"networks": []object{{"name": "default", "pod": object{}}},
		"volumes":  []object{{"name": "boot", "containerDisk": object{"image": suite.tiny}}},
	}
	change(spec, domain, devices)
	return object{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": object{"name": name}, "spec": spec}
}

// volume gives a VMI one more disk.
func volume(source object) func(spec, domain, devices object) {
	return func(spec, _, devices object) {
		source["name"] = "more"
		spec["volumes"] = append(spec["volumes"].([]object), source)
		devices["disks"] = append(devices["disks"].([]object), object{"name": "more", "disk": object{"bus": "virtio"}})
	}
}

// What names something beyond the stranger's own pod is refused when it is applied, by its path: host
// files, Secrets, addresses that the node would open, disks of others, QEMU's own arguments.
func TestAStrangersVMIsStayInTheirPods(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(spec, domain, devices object)
		path   string // is refused
	}{
		"host-disk": {volume(object{"hostDisk": object{"path": "/etc/shadow", "type": "Disk"}}), "spec.volumes[1].hostDisk"},
		"secret":    {volume(object{"secret": object{"secretName": "../default/treasure"}}), "spec.volumes[1].secret.secretName"},
		"config":    {volume(object{"configMap": object{"name": "default/treasure"}}), "spec.volumes[1].configMap.name"},
		"account":   {volume(object{"serviceAccount": object{"serviceAccountName": "../default/default"}}), "spec.volumes[1].serviceAccount.serviceAccountName"},
		"ephemeral": {volume(object{"ephemeral": object{"persistentVolumeClaim": object{"claimName": "../default/treasure"}}}),
			"spec.volumes[1].ephemeral.persistentVolumeClaim.claimName"},
		"sysprep":  {volume(object{"sysprep": object{"secret": object{"name": "../treasure"}}}), "spec.volumes[1].sysprep.secret.name"},
		"downward": {volume(object{"downwardMetrics": object{}}), "spec.volumes[1].downwardMetrics"},
		"memory":   {volume(object{"memoryDump": object{"claimName": "../others"}}), "spec.volumes[1].memoryDump.claimName"},
		"seed": {volume(object{"cloudInitNoCloud": object{"secretRef": object{"name": "../default/treasure"}, "userData": "x"}}),
			"spec.volumes[1].cloudInitNoCloud"},
		"climbing-disk": {func(spec, _, _ object) {
			spec["volumes"].([]object)[0]["containerDisk"].(object)["path"] = "/disk/../../../../etc/shadow"
		}, "spec.volumes[0].containerDisk.path"},
		"climbing-kernel": {func(_, domain, _ object) {
			domain["firmware"] = object{"kernelBoot": object{"container": object{"image": suite.tiny, "kernelPath": "../../etc/shadow"}}}
		}, "spec.domain.firmware.kernelBoot.container.kernelPath"},
		"file-system": {func(_, _, devices object) {
			devices["filesystems"] = []object{{"name": "boot", "virtiofs": object{}}}
		}, "spec.domain.devices.filesystems"},
		"passthrough": {func(_, _, devices object) {
			devices["disks"].([]object)[0] = object{"name": "boot", "lun": object{"bus": "scsi"}}
		}, "spec.domain.devices.disks[0].lun"},
		"plugin": {func(_, _, devices object) {
			devices["interfaces"].([]object)[0] = object{"name": "default", "binding": object{"name": "host"}}
		}, "spec.domain.devices.interfaces[0].binding"},
		"sriov": {func(_, _, devices object) {
			devices["interfaces"].([]object)[0] = object{"name": "default", "sriov": object{}}
		}, "spec.domain.devices.interfaces[0].sriov"},
		"credentials": {func(spec, _, _ object) {
			spec["accessCredentials"] = []object{{"sshPublicKey": object{
				"source":            object{"secret": object{"secretName": "../default/treasure"}},
				"propagationMethod": object{"qemuGuestAgent": object{"users": []string{"root"}}},
			}}}
		}, "spec.accessCredentials[0].sshPublicKey.source.secret.secretName"},
		"claims": {func(spec, _, _ object) { spec["resourceClaims"] = []object{{"name": "r"}} }, "spec.resourceClaims"},
	} {
		err := asStranger(t, strangersVMI(name, c.change))
		if err == nil || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: %v; want %s to be refused", name, err, c.path)
		}
	}
}

// A pod's author has the same annotation as the controller. What reaches beyond the pod is refused by
// the API server, or by the node, which says so on the pod; the rest of the table never starts.
func TestAStrangersPodsStayInTheirPods(t *testing.T) {
	t.Parallel()
	const disk = `"domain":{"devices":{"disks":[{"name":"d","disk":{"bus":"virtio"}}]}}`
	for name, c := range map[string]struct{ key, value, reason string }{
		"host-disk":       {"nodevirt.io/vmi", `{` + disk + `,"volumes":[{"name":"d","hostDisk":{"path":"/etc/shadow","type":"Disk"}}]}`, "hostDisk"},
		"secret":          {"nodevirt.io/vmi", `{` + disk + `,"volumes":[{"name":"d","secret":{"secretName":"treasure"}}]}`, "secret"},
		"climbing-disk":   {"nodevirt.io/vmi", `{` + disk + `,"volumes":[{"name":"d","containerDisk":{"image":"","path":"/disk/../../../etc/shadow"}}]}`, "containerDisk.path"},
		"climbing-kernel": {"nodevirt.io/vmi", `{"domain":{"firmware":{"kernelBoot":{"container":{"kernelPath":"/../etc/shadow"}}}}}`, "kernelPath"},
		"arguments":       {"nodevirt.io/vmi", `{"domain":{"qemu:commandline":{"args":["-drive","file=/etc/shadow"]}}}`, "qemu:commandline"},
		"host-device":     {"nodevirt.io/vmi", `{"domain":{"devices":{"hostDevices":[{"name":"h","deviceName":"d"}]}}}`, "hostDevices"},
		"container":       {"nodevirt.io/vm-container", "../../etc/shadow", "vm-container"},
		"claim":           {"nodevirt.io/vmi", `{` + disk + `,"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"others"}}]}`, "persistentVolumeClaim"},
		"data-volume":     {"nodevirt.io/vmi", `{` + disk + `,"volumes":[{"name":"d","dataVolume":{"name":"others"}}]}`, "dataVolume"},
		"target":          {"nodevirt.io/vmi", `{` + disk + `,"volumes":[{"name":"d","iscsi":{"targetPortal":"127.0.0.1:3260"}}]}`, "iscsi"},
		"origin":          {"nodevirt.io/disk-origin", "/etc/shadow", "disk-origin"},
		"mode":            {"nodevirt.io/disk-mode", "/etc/shadow", "disk-mode"},
		"meta":            {"nodevirt.io/cloud-init-meta-data", "[/etc/shadow]", "cloud-init-meta-data"},
		"key":             {"nodevirt.io/ssh-authorized-keys", "/etc/shadow", "ssh-authorized-keys"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := strangersPod("pod-" + name)
			pod["metadata"].(object)["annotations"] = object{c.key: c.value}
			assert.NilError(t, asStranger(t, pod))
			what := []string{"--namespace=" + stranger}
			assert.NilError(t, suite.WaitFor(t.Context(), "pod/pod-"+name, "condition="+condition.VMReady+"=false", what...))
			message := kubectl(t, append(what, "get", "pod", "pod-"+name, "-o",
				fmt.Sprintf(`jsonpath={.status.conditions[?(@.type==%q)].message}`, condition.VMReady))...)
			if !strings.Contains(message, c.reason) {
				t.Errorf("the pod says %q, without %s", message, c.reason)
			}
		})
	}
}

// Annotations of nodevirt's that only the controller may set are refused to others, at once and later;
// so is what reaches the node without nodevirt.
func TestAStrangerSetsNoAnnotationThatReachesFurther(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"nodevirt.io/imported-disks", "nodevirt.io/network-disks", "nodevirt.io/downward-metrics", "nodevirt.io/iscsi", "nodevirt.io/anything"} {
		vmi := strangersVMI("refused", func(_, _, _ object) {})
		vmi["metadata"].(object)["annotations"] = object{key: "others"}
		if err := asStranger(t, vmi); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("a VMI with %s: %v", key, err)
		}
		pod := strangersPod("refused")
		pod["metadata"].(object)["annotations"] = object{key: "iscsi://127.0.0.1:3260/iqn.2026-01.example:disk/1"}
		if err := asStranger(t, pod); err == nil || !strings.Contains(err.Error(), "only nodevirt's controller sets") {
			t.Errorf("a new pod with %s: %v", key, err)
		}
	}
	for name, change := range map[string]func(spec object){
		"the node's network": func(spec object) { spec["hostNetwork"] = true },
		"the node's files":   func(spec object) { spec["volumes"] = []object{{"name": "h", "hostPath": object{"path": "/"}}} },
		"the node's pids":    func(spec object) { spec["hostPID"] = true },
		"the node's IPC":     func(spec object) { spec["hostIPC"] = true },
		"a port of the node": func(spec object) {
			spec["containers"].([]object)[0]["ports"] = []object{{"containerPort": 80, "hostPort": 80}}
		},
		"a target of iSCSI": func(spec object) {
			spec["volumes"] = []object{{"name": "d", "iscsi": object{"targetPortal": "127.0.0.1:3260", "iqn": "iqn.2026-01.example:d", "lun": 1}}}
		},
		"a share": func(spec object) {
			spec["volumes"] = []object{{"name": "d", "nfs": object{"server": "127.0.0.1", "path": "/"}}}
		},
		"privileges": func(spec object) { spec["containers"].([]object)[0]["securityContext"] = object{"privileged": true} },
	} {
		pod := strangersPod("refused")
		change(pod["spec"].(object))
		if err := asStranger(t, pod); err == nil || !strings.Contains(err.Error(), "violates PodSecurity") && !strings.Contains(err.Error(), "Forbidden") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A VM can use Secrets of its own namespace alone, and a path is no name of a Secret.
func TestAStrangersSecretsAreOfItsNamespace(t *testing.T) {
	t.Parallel()
	const name = "others-secret"
	source := volume(object{"cloudInitNoCloud": object{"secretRef": object{"name": "treasure"}}})
	assert.NilError(t, asStranger(t, strangersVMI(name, source)))
	what := "--namespace=" + stranger
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "condition=Synchronized=false", what))
	why := kubectl(t, what, "get", "vmi", name, "-o", `jsonpath={.status.conditions[?(@.type=="Synchronized")].message}`)
	if !strings.Contains(why, `secret "treasure" not found`) {
		t.Errorf("an instance with another namespace's Secret says %q", why)
	}
}

// What a node serves to itself is on its loopback or in files: tgtd's portal, its management, the shim,
// libvirt, containerd. So there is no address at which a guest could ask for it.
func TestNodesListenOnLoopbackAlone(t *testing.T) {
	t.Parallel()
	const kubelet = "280A" // port 10250, which asks for a certificate or a token
	for i, n := range suite.Nodes() {
		out, err := n.Command(t.Context(), "cat", "/proc/net/tcp", "/proc/net/tcp6").Output()
		assert.NilError(t, err)
		seen := false
		for line := range strings.Lines(string(out)) {
			fields := strings.Fields(line)
			const listening = "0A"
			if len(fields) < 4 || fields[3] != listening {
				continue
			}
			address, port, _ := strings.Cut(fields[1], ":")
			loopback := strings.HasSuffix(address, "7F") && len(address) == 8 || address == "00000000000000000000000001000000"
			seen = seen || port == kubelet
			if !loopback && port != kubelet {
				t.Errorf("node %d listens at %s, in hexadecimal", i, fields[1])
			}
		}
		if !seen {
			t.Errorf("node %d has no kubelet in\n%s", i, out)
		}
	}
}

// A stranger's VMI that asks for nothing of others runs under the strictest Pod Security, and has no token
// of the API's; another user's VMI is not the stranger's to see.
func TestAStrangersVMIRunsInItsNamespace(t *testing.T) {
	t.Parallel()
	assert.NilError(t, asStranger(t, strangersVMI("fine", func(_, _, _ object) {})))
	what := "--namespace=" + stranger
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/fine", "jsonpath={.status.phase}=Running", what))
	spec := kubectl(t, what, "get", "pods", "--selector=vm.kubevirt.io/name=fine", "-o", "jsonpath={.items[0].spec}")
	if strings.Contains(spec, "serviceAccountToken") || strings.Contains(spec, "hostPath") {
		t.Errorf("the pod of a VMI: %s", spec)
	}
	cmd := suite.KubectlCommand(t.Context(), "--as="+stranger, "get", "vmi,secrets", "--namespace=default")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "Forbidden") {
		t.Errorf("%v: %s", err, out)
	}
}

// letStrangersIn makes the stranger's namespace, and takes it away when the tests have ended.
func letStrangersIn(ctx context.Context) error { return suite.Apply(ctx, setting) }

func showStrangersOut(ctx context.Context) error {
	for _, args := range [][]string{
		{"delete", "vmi,pods", "--all", "--namespace=" + stranger, "--wait"},
		{"delete", "namespace", stranger},
		{"delete", "secret", "treasure"},
	} {
		if _, err := suite.Kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}
