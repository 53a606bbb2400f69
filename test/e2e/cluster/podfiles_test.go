//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/wait"
)

// withGate switches one of KubeVirt's feature gates on for all, until the test ends.
func withGate(t *testing.T, gate string) {
	t.Helper()
	set := func(ctx context.Context, gates string) error {
		_, err := suite.Kubectl(ctx, "patch", "kubevirt", "kubevirt", "--namespace=nodevirt", "--type=merge",
			"--patch", `{"spec": {"configuration": {"developerConfiguration": {"featureGates": `+gates+`}}}}`)
		return err
	}
	undo(t, func(ctx context.Context) error { return set(ctx, "null") })
	assert.NilError(t, set(t.Context(), `["`+gate+`"]`))
}

// shellOf lets a guest without an agent run lines of shell. The function returns what a line prints.
func shellOf(t *testing.T, ip string) func(line string) string {
	t.Helper()
	post := func(page, body string) (string, error) {
		return suite.Control().Fetch(t.Context(), http.MethodPost, "http://"+ip+"/cgi-bin/"+page, body)
	}
	_, err := post("program", "#!/bin/sh\nexport PATH=/bin\nsh -c \"$(cat)\" 2>&1 || true\n")
	assert.NilError(t, err)
	return func(line string) string {
		t.Helper()
		answer, err := post("run", line+"\n")
		assert.NilError(t, err)
		return strings.TrimSpace(answer)
	}
}

// injected adds a volume to the pod of an instance, and mounts it, as a webhook that gives pods their credentials does.
const injected = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: cloud-credentials}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    objectSelector: {matchLabels: {vm.kubevirt.io/name: pod-files}}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >-
        Object{spec: Object.spec{
          volumes: [Object.spec.volumes{name: "injected", secret: Object.spec.volumes.secret{secretName: "cloud"}}],
          containers: [Object.spec.containers{name: "compute", volumeMounts: [
            Object.spec.containers.volumeMounts{name: "injected", mountPath: "/var/run/secrets/cloud", readOnly: true}
          ]}]
        }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: cloud-credentials}
spec: {policyName: cloud-credentials}
`

// injects applies the policy, and waits until the API server follows it.
func injects(t *testing.T, name string) {
	t.Helper()
	undo(t, func(ctx context.Context) error {
		_, err := suite.Kubectl(ctx, "delete", "--ignore-not-found",
			"mutatingadmissionpolicybinding/cloud-credentials", "mutatingadmissionpolicy/cloud-credentials")
		return err
	})
	assert.NilError(t, suite.Apply(t.Context(), injected))
	pod := plainPod("injected", suite.busybox)
	pod["metadata"].(object)["labels"] = object{byName: name}
	container(pod)["name"] = "compute"
	wait.Success(t, "a pod with the injected volume", func(context.Context) error {
		out, err := sent(t, pod, "create", "--dry-run=server", "-f", "-", "-o", "jsonpath={.spec.volumes[*].name}")
		if err == nil && !strings.Contains(out, "injected") {
			err = errors.New("it has the volumes " + out)
		}
		return err
	})
}

// readPort asks for the metrics on the guest's port, and prints them.
const readPort = `for port in /sys/class/virtio-ports/*; do
	[ "$(cat $port/name)" = org.github.vhostmd.1 ] && exec 3<>/dev/${port##*/}
done
printf 'GET /metrics/XML\n\n' >&3
while read -r line <&3 && [ -n "$line" ]; do echo "$line"; done`

// TestAGuestReadsItsPodsFiles is not parallel: it switches a feature on for all. A guest mounts a Secret, a ConfigMap, a
// service account, what the downward API has, and a volume that another party has added to its pod. It sees changes,
// and reads metrics of its node from a disk and from a port.
func TestAGuestReadsItsPodsFiles(t *testing.T) {
	const name = "pod-files"
	withGate(t, "DownwardMetrics")
	image, err := clustertest.PushDisk(t.Context(), suite.Cluster, "tiny-virtiofs:1", guest.TinyWithVirtiofs)
	assert.NilError(t, err)
	made(t, object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "live"}, "stringData": object{"password": "first"}})
	made(t, object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "cloud"}, "stringData": object{"token": "of-the-cloud"}})
	made(t, object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "live"}, "data": object{"color": "blue"}})
	made(t, object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": object{"name": "reader"}})
	injects(t, name)
	vmi := strangersVMI(name, func(spec, domain, devices object) {
		domain["memory"] = object{"guest": "128Mi"}
		devices["downwardMetrics"] = object{}
		devices["disks"] = append(devices["disks"].([]object), object{"name": "metrics", "disk": object{"bus": "virtio"}})
		volumes := []object{
			{"name": "boot", "containerDisk": object{"image": image}},
			{"name": "metrics", "downwardMetrics": object{}},
		}
		var shown []object
		for _, volume := range []object{
			{"name": "secret", "secret": object{"secretName": "live"}},
			{"name": "config", "configMap": object{"name": "live"}},
			{"name": "account", "serviceAccount": object{"serviceAccountName": "reader"}},
			{"name": "about", "downwardAPI": object{"fields": []object{{"path": "labels", "fieldRef": object{"fieldPath": "metadata.labels"}}}}},
			{"name": "cloud", "containerPath": object{"path": "/var/run/secrets/cloud"}},
		} {
			volumes, shown = append(volumes, volume), append(shown, object{"name": volume["name"], "virtiofs": object{}})
		}
		spec["volumes"], devices["filesystems"] = volumes, shown
	})
	vmi["metadata"].(object)["labels"] = object{"tier": "web"}
	made(t, vmi)
	run := shellOf(t, addressOf(t, name))
	says := func(line, want string) {
		t.Helper()
		if got := run(line); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}

	for _, volume := range []string{"secret", "config", "account", "about", "cloud"} {
		says("mkdir /"+volume+" && mount -t virtiofs "+volume+" /"+volume, "")
		says("touch /"+volume+"/new", "touch: /"+volume+"/new: Read-only file system")
	}
	says("cat /secret/password /config/color /cloud/token /account/namespace", "firstblueof-the-clouddefault")
	says(`grep -o 'tier=.*' /about/labels`, `tier="web"`)
	// Not by the link beside it: the kubelet gives that to the pod's user, in a folder that all may write, where Debian's
	// kernel follows no other user's links.
	review, err := sent(t, object{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": object{"token": run("cat /account/..data/token")},
	}, "create", "-f", "-", "-o", "jsonpath={.status}")
	assert.NilError(t, err)
	if !strings.Contains(review, `"username":"system:serviceaccount:default:reader"`) {
		t.Errorf("the token of the service account is of %s", review)
	}

	node := vmiField(t, name, ".status.nodeName")
	disk := "dd if=/dev/vdb bs=4096 count=8 2>/dev/null | tr -d '\\000'"
	for of, read := range map[string]string{"disk": disk, "port": "timeout 30 sh -c '" + strings.ReplaceAll(readPort, "'", `'\''`) + "'"} {
		wait.Success(t, "metrics on the "+of, func(context.Context) error {
			text := run("blockdev --flushbufs /dev/vdb; " + read)
			for _, want := range []string{"<value>" + node + "</value>", "TotalCPUTime", "ResourceMemoryLimit"} {
				if !strings.Contains(text, want) {
					return fmt.Errorf("no %s in %q", want, text)
				}
			}
			return nil
		})
	}

	kubectl(t, "patch", "secret", "live", "--patch", `{"stringData": {"password": "second"}}`)
	kubectl(t, "patch", "configmap", "live", "--patch", `{"data": {"color": "green"}}`)
	// A kubelet writes changes when it looks at the pod, which it does every minute or so, and when the pod changes.
	kubectl(t, "annotate", "pod", "--selector="+byName+"="+name, "example.com/looked-at=now")
	wait.Success(t, "the changes", func(context.Context) error {
		if text := run("cat /secret/password /config/color"); text != "secondgreen" {
			return errors.New("the guest reads " + text)
		}
		return nil
	})
	kubectl(t, "delete", "vmi", name)
}
