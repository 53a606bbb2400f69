//go:build cluster

package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/wait"
)

type object = map[string]any

// asker is a pod on a node, from which guests are asked.
func asker(name, node string) object {
	return object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name},
		"spec": object{
			"nodeName": node, "terminationGracePeriodSeconds": 0,
			"shareProcessNamespace": true, // pause reaps what timeout(1) leaves
			"containers":            []object{{"name": "shell", "image": suite.busybox, "command": []string{"sleep", "1000000"}}},
		},
	}
}

// vm is a VirtualMachine with runStrategy Always whose pod is labelled app=NAME. change may change its
// instances' spec.
func vm(name string, change func(spec object)) object {
	spec := object{
		"terminationGracePeriodSeconds": 60,
		"domain": object{
			"memory": object{"guest": "96Mi"},
			"devices": object{
				"disks":      []object{{"name": "boot", "disk": object{"bus": "virtio"}}},
				"interfaces": []object{{"name": "default", "bridge": object{}}},
			},
		},
		"networks": []object{{"name": "default", "pod": object{}}},
		"volumes":  []object{{"name": "boot", "containerDisk": object{"image": suite.tiny}}},
	}
	change(spec)
	return object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": name},
		"spec": object{
			"runStrategy": "Always",
			"template":    object{"metadata": object{"labels": object{"app": name}}, "spec": spec},
		},
	}
}

// on has a VM run on a node, and on no other.
func on(node string) func(spec object) {
	return func(spec object) { spec["nodeSelector"] = object{"kubernetes.io/hostname": node} }
}

// undo runs kubectl when a test has ended.
func undo(t *testing.T, args ...string) {
	t.Helper()
	if _, err := suite.Kubectl(context.WithoutCancel(t.Context()), args...); err != nil {
		t.Error(err)
	}
}

// whole waits until the node that is harmed is as if nothing had been done to it. Kubernetes takes off its own
// taints only a moment after their reason has gone.
func whole(t *testing.T) {
	t.Helper()
	waitFor(t, "node/"+harmed, "condition=Ready")
	wait.Success(t, "a node that takes pods", func(ctx context.Context) error {
		spec, err := suite.Kubectl(ctx, "get", "node", harmed, "-o", "jsonpath={.spec.taints}{.spec.unschedulable}")
		if err == nil && spec != "" {
			err = fmt.Errorf("%s has %s", harmed, spec)
		}
		return err
	})
	kubectl(t, "--namespace=nodevirt", "rollout", "status", "deployment/nodevirt-controller", "--timeout="+wait.Patience.String())
}

// rather has a VM run on a node as long as it can be had.
func rather(node string) func(spec object) {
	return func(spec object) {
		spec["affinity"] = object{"nodeAffinity": object{"preferredDuringSchedulingIgnoredDuringExecution": []object{{
			"weight": 100,
			"preference": object{"matchExpressions": []object{
				{"key": "kubernetes.io/hostname", "operator": "In", "values": []string{node}},
			}},
		}}}}
	}
}

// create makes an object, and deletes it when the test ends.
func create(t *testing.T, o object) (name string) {
	t.Helper()
	name = o["metadata"].(object)["name"].(string)
	kind := strings.ToLower(o["kind"].(string))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), wait.Patience)
		defer cancel()
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "get", "vm,vmi,pods", "-o", "wide", "--selector=app="+name)
			more, _ := suite.Kubectl(ctx, "describe", "vmi,pods", "--selector=app="+name)
			t.Logf("%s\n%s", about, more)
		}
		if _, err := suite.Kubectl(ctx, "delete", kind, name, "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
	assert.NilError(t, apply(t.Context(), o))
	return name
}

func apply(ctx context.Context, o object) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return suite.Apply(ctx, string(text))
}

// answering makes a VM and waits until its guest answers.
func answering(t *testing.T, o object) (name, boot string) {
	t.Helper()
	name = create(t, o)
	return name, answer(t, name, "")
}

// answer asks the guest of a VM until one answers that is not of a former boot.
func answer(t *testing.T, name, former string) (boot string) {
	t.Helper()
	wait.Success(t, "an answer of "+name, func(ctx context.Context) (err error) {
		ip, err := suite.Kubectl(ctx, "get", "vmi", name, "-o", "jsonpath={.status.interfaces[0].ipAddress}")
		if err != nil {
			return err
		}
		if boot, err = bootOf(ctx, "asker", ip); err == nil && boot == former {
			err = errors.New("it is the former boot")
		}
		return err
	})
	return boot
}

// bootOf has a pod ask what answers at a host for its boot's id.
func bootOf(ctx context.Context, pod, host string) (string, error) {
	page, err := fetch(ctx, pod, host, "/cgi-bin/info")
	if err != nil {
		return "", err
	}
	var info struct{ BootID string }
	if err := json.Unmarshal([]byte(page), &info); err != nil || info.BootID == "" {
		return "", fmt.Errorf("answer %q: %w", page, err)
	}
	return info.BootID, nil
}

// fetch has a pod fetch a guest's page.
func fetch(ctx context.Context, pod, host, path string) (string, error) {
	if host == "" {
		return "", errors.New("no address yet")
	}
	// Not wget -T: in Debian's busybox it crashes.
	return suite.Kubectl(ctx, "exec", pod, "--", "timeout", "10", "wget", "-q", "-O", "-", "http://"+host+path)
}

// vmiField is one of an instance's, by a JSONPath without braces.
func vmiField(t *testing.T, name, path string) string {
	t.Helper()
	return kubectl(t, "get", "vmi", name, "-o", "jsonpath={"+path+"}")
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return clustertest.Kubectl(t, suite.Cluster, args...)
}

func waitFor(t *testing.T, object, condition string) {
	t.Helper()
	assert.NilError(t, suite.WaitFor(t.Context(), object, condition))
}
