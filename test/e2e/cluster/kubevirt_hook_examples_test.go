//go:build cluster && examples

package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// script is a hook for a ConfigMap, which KubeVirt's sidecar-shim runs with the VM and the domain's XML.
const script = `#!/bin/sh
[ "$1 $3" = "--vmi --domain" ] || exit 1
echo "a script of a ConfigMap" >&2
echo "$4" | sed "s|<uuid>|<title>scripted</title><uuid>|"
`

// TestKubeVirtsHookExamples runs KubeVirt's examples of UEFI and of hook sidecars, unchanged, with KubeVirt's own sidecar-shim
// and the program of its example, which test/tools/build sidecars builds.
func TestKubeVirtsHookExamples(t *testing.T) {
	if *kubevirtExamples == "" {
		t.Fatal("missing flag: -kubevirt-examples FOLDER")
	}
	assert.NilError(t, pushKubeVirtsDisks(t.Context()))
	assert.NilError(t, suite.PushSidecars(t.Context(), sidecarShim, "kubevirt/example-hook-sidecar:devel"))
	withSidecars(t)
	kubectl(t, "create", "configmap", "my-config-map", "--from-literal=my_script.sh="+script)
	undo(t, func(ctx context.Context) error {
		_, err := suite.Kubectl(ctx, "delete", "configmap", "my-config-map")
		return err
	})
	for name, check := range map[string]func(t *testing.T, name string){
		"vmi-alpine-efi": func(*testing.T, string) {},
		"vmi-secureboot": func(*testing.T, string) {},
		"vmi-with-sidecar-hook": func(t *testing.T, name string) {
			t.Helper()
			console := connect(t, name+"/console")
			console.send("cat /sys/class/dmi/id/board_vendor\n")
			console.sees("\nRadical Edward")
		},
		"vmi-with-sidecar-hook-configmap": func(t *testing.T, name string) {
			t.Helper()
			pod := kubectl(t, "get", "pods", "--selector="+byName+"="+name, "-o", "jsonpath={.items[0].metadata.name}")
			if log := kubectl(t, "logs", pod, "--container=hook-sidecar-0"); !strings.Contains(log, "a script of a ConfigMap") {
				t.Errorf("the sidecar's log: %s", log)
			}
			titles, err := suite.Node(vmiField(t, name, ".status.nodeName")).Output(t.Context(), "sh", "-c", `for d in $(virsh list --uuid); do virsh desc --title $d; done`)
			if err != nil || !strings.Contains(titles, "scripted") {
				t.Errorf("the domains' titles: %v: %s", err, titles)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := readManifest(filepath.Join(*kubevirtExamples, name+".yaml"))
			assert.NilError(t, err)
			m.says = "nodevirt guest: up"
			m.apply(t)
			assert.Equal(t, m.refusal, "")
			t.Cleanup(func() { m.delete(t) })
			m.run(t)
			assert.Equal(t, m.runs, "")
			check(t, m.name)
		})
	}
}

// TestVMsWithSidecarsMove: a guest moves if the sidecar of its next pod makes the domain as the former did. Otherwise it
// stays where it is, and the migration says what differs.
func TestVMsWithSidecarsMove(t *testing.T) {
	assert.NilError(t, suite.PushSidecars(t.Context(), sidecarShim, "kubevirt/example-hook-sidecar:devel"))
	withSidecars(t)
	for name, tt := range map[string]struct{ value, phase, words string }{
		"same-sidecar":  {"as ever", "Succeeded", ""},
		"other-sidecar": {"$(cat /proc/sys/kernel/random/uuid)", "Failed", "Target sysinfo chassis serial"},
	} {
		t.Run(name, func(t *testing.T) {
			kubectl(t, "create", "configmap", name, "--from-literal=hook.sh=#!/bin/sh\n"+
				`echo "$4" | sed "s|</sysinfo>|<chassis><entry name='serial'>`+tt.value+`</entry></chassis></sysinfo>|"`)
			undo(t, func(ctx context.Context) error {
				_, err := suite.Kubectl(ctx, "delete", "configmap", name)
				return err
			})
			vmi := strangersVMI(name, func(_, _, _ object) {})
			vmi["metadata"].(object)["annotations"] = object{"hooks.kubevirt.io/hookSidecars": `[{"args": ["--version", "v1alpha2"], "configMap": {"name": "` + name + `", "key": "hook.sh", "hookPath": "/usr/bin/onDefineDomain"}}]`}
			made(t, vmi)
			boot, node := answerOf(t, name, ""), vmiField(t, name, ".status.nodeName")
			made(t, object{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration", "metadata": object{"name": name}, "spec": object{"vmiName": name}})
			assert.NilError(t, suite.WaitFor(t.Context(), "vmim/"+name, "jsonpath={.status.phase}="+tt.phase))
			assert.Equal(t, answerOf(t, name, ""), boot, "the guest booted again")
			now, reason := vmiField(t, name, ".status.nodeName"), vmiField(t, name, ".status.migrationState.failureReason")
			assert.Equal(t, now == node, tt.phase == "Failed", "the guest is on %s, and was on %s: %s", now, node, reason)
			assert.Assert(t, strings.Contains(reason, tt.words), reason)
		})
	}
}

// withSidecars enables KubeVirt's feature gate.
func withSidecars(t *testing.T) {
	t.Helper()
	gates := func(ctx context.Context, developer string) error {
		_, err := suite.Kubectl(ctx, "patch", "kubevirt", "kubevirt", "--namespace=nodevirt", "--type=merge",
			`--patch={"spec": {"configuration": {"developerConfiguration": `+developer+`}}}`)
		return err
	}
	assert.NilError(t, gates(t.Context(), `{"featureGates": ["Sidecar"]}`))
	undo(t, func(ctx context.Context) error { return gates(ctx, "null") })
	hooked := strangersVMI("asked", func(_, _, _ object) {})
	hooked["metadata"].(object)["annotations"] = object{"hooks.kubevirt.io/hookSidecars": `[{"args": []}]`}
	wait.Success(t, "the feature gate is on", func(context.Context) error {
		if out, err := sent(t, hooked, "apply", "--dry-run=server", "-f", "-"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}
